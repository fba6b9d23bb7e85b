"""Names in Redis belong to one cache prefix, one database and one schema."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import caches
from django.db import connection, connections
from django.test import override_settings
from redis.crc import key_slot

from idempotency import locks
from idempotency.locks.engine.session import lock_key
from idempotency.names import prefix, schema
from idempotency.redis import marker
from idempotency.redis.paid_marker import PaidMarker
from idempotency.request.keys import lock_id_of
from shop.sales import gate

CACHE = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}

NAMES: dict[str, Callable[[], list[str]]] = {
    "idempotency key": lambda: [marker.key_of("d" * 64)],
    "mark": lambda: [PaidMarker(kind="order-paid")._key("7")],
    "flash sale": lambda: gate._keys("sneaker"),
    "lock": lambda: locks.Lock("n")._keys,
    "semaphore": lambda: locks.Semaphore("n", permits=2)._keys,
    "expirable semaphore": lambda: locks.PermitExpirableSemaphore("n", permits=2)._keys,
    "latch": lambda: locks.CountDownLatch("n")._keys,
    "topic": lambda: [locks.Topic("n").channel],
}


@pytest.fixture(params=NAMES)
def names(request: pytest.FixtureRequest) -> Callable[[], list[str]]:
    """The names of one thing, made now."""
    return NAMES[request.param]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put the connection at a schema, as django-tenants does."""
    return lambda name: monkeypatch.setattr(connections["default"], "schema_name", name, raising=False)


def of_the_tenant(key: str, key_prefix: str, version: int) -> str:
    """A KEY_FUNCTION, such as django_tenants.cache.make_key."""
    return f"{schema()}:{key_prefix}:{version}:{key}"


def test_they_begin_with_cache_database_and_schema(names: Any, at: Any, settings: Any) -> None:
    database = connection.settings_dict["NAME"]
    assert all(name.startswith(f":1:payonce:{database}:") for name in names())
    settings.CACHES = {"default": {**CACHE, "KEY_PREFIX": "shop", "VERSION": 3}}
    assert all(name.startswith(f"shop:3:payonce:{database}:") for name in names())
    for tenant in ("a", "b"):
        at(tenant)
        assert all(name.startswith(f"shop:3:payonce:{database}/{tenant}:") for name in names())


def test_whatever_the_prefix_the_keys_of_a_script_stay_in_one_slot(names: Any, at: Any) -> None:
    at("{}")
    for key_prefix in ("{app}", "{}", "a}b{", "my app", "%7B", "店"):
        with override_settings(CACHES={"default": {**CACHE, "KEY_PREFIX": key_prefix}}):
            made = names()
        assert len({key_slot(name.encode()) for name in made}) == 1
        assert all(" " not in name and name.index("{") == name.rindex("{") for name in made)


def test_a_key_function_may_look_at_the_tenant_of_each_request(at: Any) -> None:
    with override_settings(CACHES={"default": {**CACHE, "KEY_FUNCTION": of_the_tenant, "KEY_PREFIX": "shop"}}):
        at("a")
        assert prefix().startswith("a:shop:1:payonce:")
        at("b")
        assert prefix().startswith("b:shop:1:payonce:")
        assert prefix().startswith(caches["default"].make_key("payonce"))


def test_without_a_cache_the_database_keeps_two_projects_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with override_settings(IDEMPOTENCY={"REDIS": "idempotency.redis.fastpath.client"}):
        monkeypatch.setitem(connection.settings_dict, "NAME", "one")
        assert prefix() == "payonce:one"
        monkeypatch.setitem(connection.settings_dict, "NAME", "two/b")
        assert prefix() == "payonce:two%2Fb"


@pytest.mark.parametrize("redis", ["default", "redis://127.0.0.1:1/0"])
def test_a_prefix_by_setting_begins_every_name(names: Any, redis: str) -> None:
    with override_settings(IDEMPOTENCY={"REDIS": redis, "REDIS_PREFIX": "my {app}"}):
        assert all(name.startswith("my%20%7Bapp%7D:payonce:") for name in names())


def test_advisory_locks_of_two_schemas_are_two() -> None:
    assert len({lock_key("n"), lock_key("n", schema="a"), lock_key("n", schema="b")}) == 3
    assert len({lock_id_of("d" * 64, schema=name) for name in ("", "a", "b")}) == 3


def test_a_program_without_settings_of_django_has_locks_of_its_own() -> None:
    program = "from idempotency.locks.engine.hub import tagged; print(tagged('lock', 'n'))"
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "payonce:lock:{n}\n"


def test_a_prefix_of_their_own_is_shared_by_projects_and_tenants(at: Any) -> None:
    made: list[Callable[[], Any]] = [
        lambda: locks.Lock("n", prefix="a:b")._keys[0],
        lambda: locks.ReadWriteLock("n", prefix="a:b").read._key,
        lambda: locks.Semaphore("n", permits=2, prefix="a:b")._keys[0],
        lambda: locks.PermitExpirableSemaphore("n", permits=2, prefix="a:b")._keys[0],
        lambda: locks.CountDownLatch("n", prefix="a:b")._keys[0],
        lambda: locks.RateLimiter("n", permits=2, prefix="a:b")._key,
        lambda: locks.Topic("n", prefix="a:b").channel,
        lambda: locks.ExpiringSet("n", ttl_seconds=1, prefix="a:b")._remembering("m")[0][0],
    ]
    at("tenant")
    for key in (each() for each in made):
        assert key.startswith("a%3Ab:payonce:")  # as the ACL of a client's user wants it
        assert "{" in key


def test_locks_of_one_name_and_two_prefixes_are_taken_in_one_order() -> None:
    first, second = (locks.Lock("a", prefix=own) for own in ("x", "y"))
    for given in ([first, second], [second, first]):
        assert [lock._keys for lock in locks.MultiLock(given).locks] == [first._keys, second._keys]
