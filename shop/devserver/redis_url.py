"""`REDIS_URL` as Django's settings: one server, a master that Sentinels name, or a Cluster.

docs/reference/settings.md has the forms. User and password, if any, stand before the first host and are those of
the data servers.
"""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from django.conf import settings
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url
from redis.retry import Retry

# an unreachable server costs one time-out, then the breaker keeps away from it
TIMEOUT_SECONDS = 0.2
CONNECTIONS_MAX = 64

_PLAIN = ("redis://", "rediss://", "unix://")
_SENTINEL, _CLUSTER = "redis+sentinel://", "redis+cluster://"
_UNREADABLE = (
    "cannot be read; percent-encode user and password, and see that ports and what follows a ? are of their kind"
)
_EXAMPLES = f"redis://host:6379/0, {_SENTINEL}host:26379,host:26379/name/0 or {_CLUSTER}host:6379,host:6379"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Servers; `login` is ``user:password@`` as in the URL, `rest` what follows the hosts."""

    nodes: list[tuple[str, int]]
    login: str
    rest: str


def is_cluster(url: str) -> bool:
    """Return whether `url` names a Cluster, for which django-redis has no client."""
    return url.startswith(_CLUSTER)


def caches(url: str) -> dict[str, Any]:
    """Return Django's `CACHES` for `url`; ValueError names the mistake, not the password."""
    if is_cluster(url):
        _address(url, _CLUSTER, port=6379)
        return {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    options: dict[str, Any] = {
        "SERIALIZER": "django_redis.serializers.json.JSONSerializer",  # pickle would run what others write there
        "SOCKET_CONNECT_TIMEOUT": TIMEOUT_SECONDS,
        "SOCKET_TIMEOUT": TIMEOUT_SECONDS,
        "CONNECTION_POOL_KWARGS": {"max_connections": CONNECTIONS_MAX, "retry": None},
    }
    location = url
    if url.startswith(_SENTINEL):
        found = _address(url, _SENTINEL, port=26_379)
        if not found.rest:
            raise ValueError(f"does not say what the Sentinels call their master; write {_SENTINEL}…/name/0")
        name = found.rest.partition("/")[0].partition("?")[0]
        if name != name.lower():  # django-redis takes it for a host's name, and asks for it in small letters
            raise ValueError(f"names a master {name!r}: capitals are lost on the way to the Sentinels; rename it")
        location = f"redis://{found.login}{found.rest}"
        options |= {
            "CLIENT_CLASS": "django_redis.client.SentinelClient",
            "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
            "SENTINELS": found.nodes,
            "SENTINEL_KWARGS": {
                "socket_timeout": TIMEOUT_SECONDS,
                "socket_connect_timeout": TIMEOUT_SECONDS,
                "retry": None,
            },
        }
    elif not url.startswith(_PLAIN):
        raise ValueError(f"must begin like one of {_EXAMPLES}")
    _check_readable(location)
    return {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location, "OPTIONS": options}}


def cluster_client() -> RedisCluster:
    """Make a client of `REDIS_URL`'s Cluster (`IDEMPOTENCY["REDIS"]`), without retries."""
    found = _address(settings.REDIS_URL, _CLUSTER, port=6379)
    user, _, password = found.login.removesuffix("@").partition(":")
    return RedisCluster(
        startup_nodes=[ClusterNode(host, port) for host, port in found.nodes],  # type: ignore[no-untyped-call]
        username=unquote(user) or None,
        password=unquote(password) or None,
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        max_connections=CONNECTIONS_MAX,
        retry=Retry(NoBackoff(), 0),
    )


def _check_readable(url: str) -> None:
    """Refuse a URL that the client cannot parse: its own message would show the password."""
    try:
        parse_url(url)  # type: ignore[no-untyped-call]
        path = urlsplit(url).path.strip("/")
        cut_off = "@" in url.removeprefix(f"{urlsplit(url).scheme}://{urlsplit(url).netloc}")
    except ValueError:
        cut_off = True
    if cut_off:  # by one of / ? # in the password: what stands before it was taken for host and port
        raise ValueError(_UNREADABLE)
    is_named = bool(path) if url.startswith("unix:") else re.fullmatch(r"[0-9]*", path)
    if not is_named:  # the client would take database 0
        raise ValueError(f"names no socket or no number of a database; write {_EXAMPLES} or unix:///path?db=0")


def _address(url: str, scheme: str, *, port: int) -> Address:
    hosts, _, rest = url.removeprefix(scheme).partition("/")
    if "@" in rest:  # as above
        raise ValueError(_UNREADABLE)
    login, at, hosts = hosts.rpartition("@")
    return Address(nodes=[_node(host, port) for host in hosts.split(",")], login=login + at, rest=rest)


def _node(text: str, default: int) -> tuple[str, int]:
    host, colon, number = text.rpartition(":")
    if not colon:
        host, number = text, str(default)
    if not host or not number.isascii() or not number.isdigit() or not 1 <= int(number) <= 65_535:
        raise ValueError(f"names no server with {text!r}; write host:port, with commas between several")
    return host, int(number)
