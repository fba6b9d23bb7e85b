"""A message that a queue delivers twice is applied once: over Redis Streams and over procrastinate."""

import signal
import subprocess
import sys
from typing import Any
from uuid import UUID

import pytest
import redis
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction
from procrastinate.contrib.django import app

from idempotency.inbox import consume_once
from idempotency.models import ConsumedMessage
from tests.processes import on_the_tests_database
from tests.sandbox import ROOT
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
    with pytest.raises(transaction.TransactionManagementError, match="own transaction"):
        consume_once("m1", consumer="stock")
    for message_id, consumer in (("", "stock"), ("m", ""), ("m" * 256, "stock"), ("m", "s" * 97)):
        with transaction.atomic(), pytest.raises(ValueError, match="message id"):
            consume_once(message_id, consumer=consumer)


@pytest.mark.parametrize("message_id", [12, 0, -1, UUID(int=7), "m1"])
def test_an_id_may_be_a_number_or_a_uuid_and_is_its_text(message_id: str | int | UUID) -> None:
    with transaction.atomic():
        assert consume_once(message_id, consumer="stock")
    with transaction.atomic():
        assert not consume_once(message_id, consumer="stock")
        assert not consume_once(str(message_id), consumer="stock")
    assert ConsumedMessage.objects.get().message_id == str(message_id)


@pytest.mark.parametrize("message_id", [None, True, 1.5, b"m1", ("m", 1)])
def test_an_id_of_another_type_is_refused(message_id: Any) -> None:
    with transaction.atomic(), pytest.raises(TypeError, match=r"a str, an int or a UUID, not \w+\. Give its text"):
        consume_once(message_id, consumer="stock")


CONSUMER = """
import os, signal, sys
import django
django.setup()
import redis
from django.contrib.auth.models import Group
from django.db import transaction
from idempotency.inbox import consume_once

name, die = sys.argv[1:]
client = redis.Redis.from_url(os.environ["REDIS_URL"])
# first what a dead consumer left behind, then what is new
claimed = client.xautoclaim("orders", "stock", name, min_idle_time=0)[1]
fresh = client.xreadgroup("stock", name, {"orders": ">"}, count=10) or [(b"orders", [])]
for message_id, fields in [*claimed, *fresh[0][1]]:
    with transaction.atomic():
        if consume_once(message_id.decode(), consumer="stock"):
            Group.objects.create(name=fields[b"name"].decode())
        if die == "before the commit":
            os.kill(os.getpid(), signal.SIGKILL)
    if die == "before the acknowledgement":
        os.kill(os.getpid(), signal.SIGKILL)
    client.xack("orders", "stock", message_id)
"""


WORKER = """
import os, signal, sys
import django
django.setup()
from django.contrib.auth.models import Group
from django.db import transaction
from procrastinate.contrib.django import app
from idempotency.inbox import consume_once

@app.task(name="tests.inbox.apply", queue="inbox")
def apply(message_id):
    with transaction.atomic():
        if consume_once(message_id, consumer="stock"):
            Group.objects.create(name=f"applied {message_id}")
    if sys.argv[1] == "die":
        os.kill(os.getpid(), signal.SIGKILL)  # committed, and the queue does not know it

worker = app.with_connector(app.connector.get_worker_connector())
worker.run_worker(wait=False, queues=["inbox"], listen_notify=False)
"""


def process(script: str, *arguments: str) -> int:
    """`script` in a process of its own, on the test's database; its exit code."""
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, cwd=ROOT, env=on_the_tests_database(), check=False, timeout=60).returncode


@pytest.mark.parametrize("die", ["before the commit", "before the acknowledgement"])
def test_over_redis_streams_a_killed_consumers_message_is_redelivered_and_applied_once(
    redis_server: redis.Redis, die: str
) -> None:
    redis_server.xgroup_create("orders", "stock", id="0", mkstream=True)
    for number in range(3):
        redis_server.xadd("orders", {"name": f"message {number}"})
    assert process(CONSUMER, "one", die) == -signal.SIGKILL
    assert Group.objects.count() == (0 if die == "before the commit" else 1)
    assert process(CONSUMER, "two", "never") == 0
    assert sorted(Group.objects.values_list("name", flat=True)) == [f"message {number}" for number in range(3)]
    assert redis_server.xpending("orders", "stock")["pending"] == 0


def test_over_procrastinate_a_killed_workers_job_runs_again_and_is_applied_once() -> None:
    app.configure_task("tests.inbox.apply", queue="inbox").defer(message_id="m1")
    assert process(WORKER, "die") == -signal.SIGKILL
    with connection.cursor() as cursor:
        # what `retry_job` of procrastinate does with the jobs of a worker that is gone
        cursor.execute(
            "UPDATE procrastinate_jobs SET status = 'todo' WHERE status = 'doing' AND task_name = 'tests.inbox.apply'"
        )
        assert cursor.rowcount == 1
    assert process(WORKER, "live") == 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT status FROM procrastinate_jobs WHERE task_name = 'tests.inbox.apply'")
        assert cursor.fetchall() == []  # what succeeded is removed, or the queue's tables would grow for ever
    assert Group.objects.get().name == "applied m1"
