"""A mistake in the settings is named before the first request meets it."""

import ast
import re
import sys
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from idempotency.checks.settings import GZIP, MIDDLEWARE, check_enabled, check_settings
from idempotency.conf import config, parse
from idempotency.redis import fastpath
from idempotency.redis.fastpath import Breaker

LOCAL = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
DJANGOS_OWN = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://x"}}
CSRF = "django.middleware.csrf.CsrfViewMiddleware"
SIGNED_COOKIES = "django.contrib.sessions.backends.signed_cookies"


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ({"WAIT": 1}, r"did you mean 'WAIT_SECONDS'\?"),
        ({"zzz": 1}, "known are ANONYMOUS, .*WAIT_SECONDS"),
        ({"ENABLED": "no"}, "'ENABLED'.*True or False"),
        ({"HEADER": "X Key"}, "'HEADER'.*name of a header"),
        ({"HEADER": "Authorization"}, "'HEADER'.*no other meaning"),
        ({"IGNORE": "sent_at"}, "'IGNORE'.*list of names"),
        ({"DATABASE": "nowhere"}, "'nowhere', which is not in DATABASES"),
        ({"REDIS": "nowhere"}, r"'REDIS'\] is 'nowhere'\. Write a URL"),
        ({"REDIS": "http://localhost:6379"}, r"Write a URL such as 'redis://localhost:6379/0'"),
        ({"REDIS": "redis://localhost/0?nothing=1"}, "that redis-py does not take: .*'nothing'"),
        ({"REDIS": "rediss://localhost/0?ssl_cert_reqs=any"}, "that redis-py does not take: .*: any"),
        ({"LEASE_SECONDS": 0}, "LEASE_SECONDS"),
        ({"MARKER_SECONDS": "3"}, "MARKER_SECONDS"),
        ({"WAIT_SECONDS": -1}, "WAIT_SECONDS"),
        ({"LEASE_SECONDS": 10**10}, r"LEASE_SECONDS.* up to 1,000,000,000"),  # a thread cannot wait so long
        ({"REPEATS": 1.5}, r"REPEATS.* must be 0 or a positive integer"),
        ({"KEYED": "all"}, r"'KEYED'\] is 'all'\. Write 'marked'"),
        ({"KEYED": "/api/"}, r"a list of path prefixes such as \['/api/'\]"),
        ({"KEYED": ["/api/", "other/"]}, "prefix 'other/'.*leading slash"),
        ({"TOMBSTONE_SECONDS": 60, "BODY_SECONDS": 60}, "TOMBSTONE_SECONDS.*TOKEN_SECONDS"),
        ({"PRINCIPAL": "no.such.function"}, "PRINCIPAL"),
        ({"PRINCIPAL": "idempotency.redis.fastpath.breaker"}, "must name a function"),
        ({"ON_REPLAY": "idempotency.locks.aio.close"}, "must name a function without async"),
        ({"ANONYMOUS": "reject"}, "'accept' or 'refuse'"),
        ({"REDIS_PREFIX": None}, "must be a text"),
        ({"LOCK_SERVERS": {"redis": "one"}}, "a list of an odd number of URLs"),
        ({"LOCK_SERVERS": {"zookeeper": ""}}, "its hosts such as"),
        ({"PROBLEM_TYPE_BASE": 'https://shop.example/"><script>'}, "http"),
        ({"PRINCIPAL": len}, r"'PRINCIPAL'\] must be the dotted path of a function, .*not <built-in"),
        ({"REDACT": "card"}, "REDACT"),
        ({"SUBJECT_ADMIN": {"order": 1}}, "SUBJECT_ADMIN"),
        ({"BODY_KEYS": {"k": "short"}}, "BODY_KEYS"),
        ({"BODY_KEYS": {"k": "é" * 44}}, "BODY_KEYS"),
        (["WAIT_SECONDS"], "must be a dict"),
    ],
)
def test_a_wrong_setting_is_named(raw: Any, word: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=word):
        parse(raw)
    with override_settings(IDEMPOTENCY=raw):
        assert [message.id for message in check_settings(None)] == ["idempotency.E001"]


@pytest.mark.parametrize(
    ("setting", "value", "package", "extra"),
    [
        ("BODY_KEYS", {"of this test": "A" * 43 + "="}, "cryptography", "encryption"),
        ("LOCK_SERVERS", {"zookeeper": "one:2181"}, "kazoo", "zookeeper"),
    ],
)
def test_a_setting_names_the_extra_that_it_lacks(
    setting: str, value: dict[str, str], package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it was not installed
    with override_settings(IDEMPOTENCY={setting: value}):
        (message,) = check_settings(None)
    assert message.id == "idempotency.E001"
    assert message.msg == f"IDEMPOTENCY['{setting}'] needs {package}: pip install 'payonce[{extra}]'"


@pytest.mark.parametrize("scheme", ["redis", "redis+sentinel"])
@pytest.mark.parametrize("password", ["qx/vw", "qx#vw", "[qx]vw", "12?qx=vw"])
def test_no_message_has_a_part_of_a_password(scheme: str, password: str) -> None:
    url = f"{scheme}://:{password}@localhost:6379/0"
    for raw in ({"REDIS": url}, {"LOCK_SERVERS": {"redlock": [url, url]}}):
        with pytest.raises(ImproperlyConfigured) as refused:
            parse(raw)
        assert not re.search("qx|vw", str(refused.value))


def test_all_wrong_settings_are_named_at_once() -> None:
    with override_settings(IDEMPOTENCY={"WAIT_SECOND": 1, "KEYED": "all", "REDACT": "card", "LEASE_SECONDS": 9}):
        first, second, third = (message.msg for message in check_settings(None))
    assert ("WAIT_SECONDS" in first, "KEYED" in second, "REDACT" in third) == (True, True, True)


def test_switched_off_nothing_is_asked_of_the_project_and_a_deployment_is_warned_of() -> None:
    assert check_enabled(None) == []
    with override_settings(IDEMPOTENCY={"ENABLED": False}, MIDDLEWARE=[], CACHES={"default": {"BACKEND": "x"}}):
        (message,) = check_enabled(None)
        assert check_settings(None) == []
    assert (message.id, message.is_serious()) == ("idempotency.W006", False)


def test_the_ledger_may_be_in_another_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES, "orders", {"ENGINE": "django.db.backends.postgresql"})
    assert parse({"DATABASE": "orders"}).database == "orders"
    with override_settings(IDEMPOTENCY={"DATABASE": "orders"}):
        (message,) = (one for one in check_settings(None) if one.id == "idempotency.E015")
        assert "Put 'idempotency.routers.LedgerRouter' first in DATABASE_ROUTERS" in message.msg
    with override_settings(
        IDEMPOTENCY={"DATABASE": "orders"}, DATABASE_ROUTERS=["idempotency.routers.LedgerRouter"]
    ):
        assert "idempotency.E015" not in {one.id for one in check_settings(None)}


class Elsewhere:
    """A router that has an app in a database of its own."""

    def __init__(self, app: str) -> None:
        self.app = app

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "other" if model._meta.app_label == self.app else None


class Nowhere:
    """A router that makes no tables for the ledger."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if app_label == "idempotency" else None


@pytest.mark.parametrize("router", [Elsewhere("idempotency"), Nowhere()])
def test_a_router_that_separates_ledger_and_views_is_named(router: object) -> None:
    with override_settings(DATABASE_ROUTERS=[router]):
        (message,) = check_settings(None)
    assert (message.id, "keeps the ledger's tables out of 'default'" in message.msg) == ("idempotency.E015", True)


def test_models_that_are_written_elsewhere_are_an_error_until_the_database_is_named() -> None:
    """Whose effects and ledger commit apart has two effects after a crash, and nothing says so."""
    with override_settings(DATABASE_ROUTERS=[Elsewhere("shop")]):
        (forgotten,) = check_settings(None)
        with override_settings(IDEMPOTENCY={"DATABASE": "default"}):
            (chosen,) = check_settings(None)
    assert (forgotten.id, chosen.id) == ("idempotency.E021", "idempotency.W005")
    assert (forgotten.is_serious(), chosen.is_serious()) == (True, False)
    for message in (forgotten, chosen):
        assert "transactions in 'default', and these are written elsewhere: shop." in message.msg
        assert "IDEMPOTENCY['DATABASE']" in str(message.hint)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"MIDDLEWARE": []}, []),
        ({"MIDDLEWARE": [MIDDLEWARE, CSRF], "IDEMPOTENCY": {"KEYED": "marked"}}, []),
        ({"MIDDLEWARE": [MIDDLEWARE, CSRF], "IDEMPOTENCY": {"KEYED": "unsafe"}}, ["idempotency.E010"]),
        ({"MIDDLEWARE": [CSRF, MIDDLEWARE], "IDEMPOTENCY": {"KEYED": ["/api/"]}}, []),
        (
            {"MIDDLEWARE": [MIDDLEWARE, "django.contrib.auth.middleware.AuthenticationMiddleware"]},
            ["idempotency.E003"],
        ),
        ({"MIDDLEWARE": [MIDDLEWARE, GZIP]}, ["idempotency.E003"]),
        ({"MIDDLEWARE": ["idempotency.IdempotencyMiddleware", GZIP]}, ["idempotency.E003"]),  # as public
        ({"CACHES": LOCAL}, ["idempotency.W008"]),
        ({"CACHES": LOCAL, "IDEMPOTENCY": {"REDIS": "default"}}, ["idempotency.E004"]),
        ({"CACHES": LOCAL, "IDEMPOTENCY": {"REDIS": "idempotency.redis.fastpath.client"}}, []),
        ({"CACHES": LOCAL, "IDEMPOTENCY": {"REDIS": None}}, []),
        ({"SESSION_ENGINE": SIGNED_COOKIES}, ["idempotency.E008", "idempotency.I001"]),
        (
            {"SESSION_ENGINE": SIGNED_COOKIES, "IDEMPOTENCY": {"PRINCIPAL": "idempotency.redis.fastpath.client"}},
            ["idempotency.I001"],
        ),
        ({"SESSION_ENGINE": "django.contrib.sessions.backends.cached_db"}, ["idempotency.I001"]),
        ({"SESSION_ENGINE": "django.contrib.sessions.backends.cache"}, ["idempotency.I001"]),
    ],
)
def test_checks_explain_mistakes(changed: dict[str, Any], expected: list[str]) -> None:
    with override_settings(**changed):
        assert [message.id for message in check_settings(None)] == expected


@pytest.mark.parametrize("raw", [{}, {"REDIS": "default"}], ids=["not named", "no Redis"])
def test_both_ways_out_of_a_missing_redis_can_be_copied_from_its_hint(raw: dict[str, Any]) -> None:
    with override_settings(CACHES=LOCAL, IDEMPOTENCY=raw):
        (message,) = check_settings(None)
        written = re.findall(r"IDEMPOTENCY = (\{.*?\})", message.hint or "")
        assert len(written) == 2
        for each in written:
            with override_settings(IDEMPOTENCY=ast.literal_eval(each)):
                assert check_settings(None) == []


@pytest.mark.parametrize("backend", [LOCAL, DJANGOS_OWN, {}], ids=["in memory", "Django's own Redis", "none"])
def test_where_nothing_names_a_redis_the_ledger_works_alone(backend: dict[str, Any]) -> None:
    with override_settings(CACHES=backend, IDEMPOTENCY={}):
        assert (config().uses_redis, fastpath.takes_writes()) == (False, False)
        with pytest.raises(ImproperlyConfigured, match=r"IDEMPOTENCY\['REDIS'\] names no Redis"):
            fastpath.client()
    with override_settings(IDEMPOTENCY={"WAIT_SECONDS": 2}):  # beside a cache of django-redis
        assert config().redis_alias == "default"


def test_an_open_breaker_lets_one_probe_through_after_its_pause() -> None:
    breaker = Breaker()
    assert breaker.allows(open_seconds=60)
    breaker.failed(open_seconds=60)
    assert not breaker.allows(open_seconds=60)
    breaker.failed(open_seconds=0)
    assert breaker.allows(open_seconds=60)
    assert not breaker.allows(open_seconds=60)
    breaker.succeeded()
    assert breaker.allows(open_seconds=60)
