"""A message that a queue delivers twice is applied once: over Redis Streams and over procrastinate."""

import os
import signal
from typing import Any
from uuid import UUID

import pytest
import redis
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction
from procrastinate.contrib.django import app

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
    refused = [("", "stock"), ("m", ""), ("m" * 256, "stock"), ("m", "s" * 97), ("m\x00", "stock")]
    for message_id, consumer in refused:
        with transaction.atomic(), pytest.raises(ValueError, match="message id"):
            consume_once(message_id, consumer=consumer)
    name: Any
    for name in (b"stock", ["stock"], None):  # PostgreSQL would store a text of it
        with transaction.atomic(), pytest.raises(TypeError, match="consumer's name is a str, not"):
            consume_once("m1", consumer=name)


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


def test_an_id_of_another_type_is_refused() -> None:
    for wrong in (None, True, 1.5, b"m1", ("m", 1)):
        with transaction.atomic(), pytest.raises(TypeError, match=r"an int or a UUID, not \w+\. Give its text"):
            consume_once(wrong, consumer="stock")  # type: ignore[arg-type]


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


def work(*, dies: bool = False) -> None:
    """Run the queue's jobs once; on request die where the effect is committed and the queue does not know it."""

    @app.task(name="tests.inbox.apply", queue="inbox")
    def apply_job(message_id: str) -> None:
        apply(message_id)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)

    worker = app.with_connector(app.connector.get_worker_connector())
    worker.run_worker(wait=False, queues=["inbox"], listen_notify=False)


def process(call: str) -> int:
    """Evaluate `call` in a process of its own, on the test's database; return its exit code."""
    with on_its_own(f"from {__name__} import consume, work; {call}") as process:
        return process.wait(60)


def test_over_redis_streams_a_killed_consumers_message_is_redelivered_and_applied_once(
    redis_server: redis.Redis,
) -> None:
    redis_server.xgroup_create("orders", "stock", id="0", mkstream=True)
    for number in range(3):
        redis_server.xadd("orders", {"name": f"message {number}"})
    assert process("consume('one', dies=True)") == -signal.SIGKILL
    assert Group.objects.count() == 1
    consume("two")
    assert sorted(Group.objects.values_list("name", flat=True)) == [f"message {number}" for number in range(3)]
    assert redis_server.xpending("orders", "stock")["pending"] == 0


def test_over_procrastinate_a_killed_workers_job_runs_again_and_is_applied_once() -> None:
    app.configure_task("tests.inbox.apply", queue="inbox").defer(message_id="m1")
    assert process("work(dies=True)") == -signal.SIGKILL
    with connection.cursor() as cursor:
        # what `retry_job` of procrastinate does with the jobs of a worker that is gone
        cursor.execute(
            "UPDATE procrastinate_jobs SET status = 'todo' WHERE status = 'doing' AND task_name = 'tests.inbox.apply'"
        )
        assert cursor.rowcount == 1
        assert process("work()") == 0
        cursor.execute("SELECT status FROM procrastinate_jobs WHERE task_name = 'tests.inbox.apply'")
        assert cursor.fetchall() == []  # what succeeded is removed, or the queue's tables would grow for ever
    assert Group.objects.get().name == "stock m1"
