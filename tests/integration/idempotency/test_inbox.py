"""A message that a queue delivers twice is applied once, also over Redis Streams."""

import os
import signal
from typing import Any
from uuid import UUID

import pytest
import redis
from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction

from idempotency import once
from idempotency.inbox import consume_once
from idempotency.models import ConsumedMessage
from tests.processes import on_its_own
from tests.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)


def apply(message_id: str = "m1", consumer: str = "stock") -> bool:
    with transaction.atomic():
        first = consume_once(message_id, consumer=consumer)
        if first:
            Group.objects.create(name=f"{consumer} {message_id}")
        return first


def test_the_second_delivery_is_not_applied_and_another_consumer_is_another_matter() -> None:
    assert [apply(), apply(), apply(consumer="mail"), apply("m2")] == [True, False, True, True]
    assert Group.objects.count() == 3


def test_deliveries_at_the_same_instant_are_applied_once() -> None:
    assert sorted(at_once(*[apply] * 8)) == [False] * 7 + [True]
    assert Group.objects.count() == 1


def test_an_effect_that_fails_takes_the_mark_with_it() -> None:
    Group.objects.create(name="stock m1")
    with pytest.raises(IntegrityError):
        apply()
    assert ConsumedMessage.objects.count() == 0
    Group.objects.all().delete()
    assert apply()


def test_outside_a_transaction_it_refuses() -> None:
    with pytest.raises(transaction.TransactionManagementError, match=r"transaction.atomic\(using='default'\)"):
        consume_once("m1", consumer="stock")


@pytest.mark.parametrize(
    ("message_id", "consumer", "sentence"),
    [
        *((wrong, "stock", "message id") for wrong in ("", "m" * 256, "m\x00")),
        *(("m", wrong, "message id") for wrong in ("", "s" * 97)),
        ("m1", ["stock"], "consumer's name is a str, not"),  # PostgreSQL would store a text of it
        *((wrong, "stock", r"an int or a UUID, not \w+\. Give its text") for wrong in (None, True, b"m1")),
    ],
)
def test_names_that_are_none_are_refused(message_id: Any, consumer: Any, sentence: str) -> None:
    with transaction.atomic(), pytest.raises((ValueError, TypeError), match=sentence):
        consume_once(message_id, consumer=consumer)


@pytest.mark.django_db
def test_the_transaction_of_a_test_case_is_none() -> None:
    """Production has no such block, so a suite must not pass with it."""
    with pytest.raises(transaction.TransactionManagementError):
        consume_once("m1", consumer="stock")
    assert apply()
    assert once("n", key="k").run(lambda: consume_once("m2", consumer="stock"))


@pytest.mark.parametrize("message_id", [0, UUID(int=7), "m1"])
def test_an_id_may_be_a_number_or_a_uuid_and_is_its_text(message_id: str | int | UUID) -> None:
    with transaction.atomic():
        assert consume_once(message_id, consumer="stock")
        assert not consume_once(message_id, consumer="stock")
        assert not consume_once(str(message_id), consumer="stock")
    assert ConsumedMessage.objects.get().message_id == str(message_id)


def consume(name: str, *, dies: bool = False) -> None:
    """Take a dead consumer's messages, then new ones; on request die unacknowledged."""
    client: Any = redis.Redis.from_url(os.environ["REDIS_URL"])
    claimed = client.xautoclaim("orders", "stock", name, min_idle_time=0)[1]
    fresh = client.xreadgroup("stock", name, {"orders": ">"}, count=10) or [(b"orders", [])]
    for message_id, fields in [*claimed, *fresh[0][1]]:
        with transaction.atomic():
            if consume_once(message_id.decode(), consumer="stock"):
                Group.objects.create(name=fields[b"name"].decode())
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        client.xack("orders", "stock", message_id)
    client.close()


def test_over_redis_streams_a_killed_consumers_message_is_redelivered_and_applied_once(
    redis_server: redis.Redis,
) -> None:
    redis_server.xgroup_create("orders", "stock", id="0", mkstream=True)
    for number in range(3):
        redis_server.xadd("orders", {"name": f"message {number}"})
    with on_its_own(f"from {__name__} import consume; consume('one', dies=True)") as process:
        assert process.wait(60) == -signal.SIGKILL
    assert Group.objects.count() == 1
    consume("two")
    assert sorted(Group.objects.values_list("name", flat=True)) == [f"message {number}" for number in range(3)]
    assert redis_server.xpending("orders", "stock")["pending"] == 0
