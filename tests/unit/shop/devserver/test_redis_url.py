"""What `REDIS_URL` may say, and what is said about a mistake in it."""

import pickle
from typing import Any

import pytest
from django_redis.cache import RedisCache

from shop.devserver import redis_url
from tests.settings import REDIS_SECONDS


def default(url: str) -> dict[str, Any]:
    cache: dict[str, Any] = redis_url.caches(url)["default"]
    return cache


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:6379/0", "rediss://:secret@redis.example:6380/1", "unix:///run/redis.sock?db=0"]
)
def test_one_server_is_used_as_it_stands(url: str) -> None:
    cache = default(url)
    assert (cache["BACKEND"], cache["LOCATION"]) == ("django_redis.cache.RedisCache", url)
    assert cache["OPTIONS"]["SOCKET_TIMEOUT"] == redis_url.TIMEOUT_SECONDS
    assert "SENTINELS" not in cache["OPTIONS"]
    assert REDIS_SECONDS == 0.2


def test_sentinels_are_asked_for_the_master() -> None:
    cache = default("redis+sentinel://shop:secret@10.0.0.1:26380,10.0.0.2/payonce/3")
    assert cache["LOCATION"] == "redis://shop:secret@payonce/3"
    assert cache["OPTIONS"]["SENTINELS"] == [("10.0.0.1", 26380), ("10.0.0.2", 26379)]
    assert cache["OPTIONS"]["SENTINEL_KWARGS"]["retry"] is None


def test_a_cluster_is_reached_by_a_client_of_our_own(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(redis_url, "RedisCluster", lambda **given: made.update(given))
    settings.REDIS_URL = "redis+cluster://shop:s%40crt@10.0.0.1:7000,10.0.0.2"
    redis_url.cluster_client()
    assert [(node.host, node.port) for node in made["startup_nodes"]] == [("10.0.0.1", 7000), ("10.0.0.2", 6379)]
    assert (made["username"], made["password"]) == ("shop", "s@crt")
    assert "django_redis" not in default("redis+cluster://10.0.0.1:7000")["BACKEND"]


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("localhost:6379", "must begin like one of redis://"),
        ("http://redis", "must begin like one of redis://"),
        ("redis+sentinel://10.0.0.1:26379", "what the Sentinels call their master"),
        ("redis+sentinel://10.0.0.1:x/payonce", "names no server with '10.0.0.1:x'"),
        # django-redis asks for it in small letters, and to a Sentinel that is another name
        ("redis+sentinel://:secret@10.0.0.1:26379/MyMaster/0", "names a master 'MyMaster'"),
        ("redis+cluster://:secret@10.0.0.1:7000,,", "names no server with ''"),
        ("redis+cluster://10.0.0.1:0", "names no server"),
        # what base64 makes of a password
        *(
            (f"{scheme}://:secret{special}word@10.0.0.1:6379/name/0", "percent-encode")
            for scheme in ("redis", "rediss", "unix", "redis+sentinel")
            for special in "/?#["
        ),
        ("redis+cluster://:secret/word@10.0.0.1:7000", "percent-encode"),
        ("redis://:1234/word@10.0.0.1:6379/0", "percent-encode"),
        ("redis://10.0.0.1:99999/0", "ports"),
        ("redis://10.0.0.1:6379/0?socket_timeout=secret", "what follows a ?"),
    ],
)
def test_a_mistake_is_named_without_the_password(url: str, named: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        redis_url.caches(url)
    assert named in str(raised.value)
    assert "secret" not in str(raised.value)


def test_what_others_write_into_the_cache_is_never_run() -> None:
    url = "redis://127.0.0.1:6379/0"
    with pytest.raises(ValueError, match="codec"):
        RedisCache(url, default(url)).client.decode(pickle.dumps("anything"))
