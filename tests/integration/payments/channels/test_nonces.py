"""Nonces of notifications decide nothing: the database alone acknowledges."""

import pytest
import redis
from django.db import connection, transaction

from idempotency.locks import ExpiringSet
from payments.channels.sharing import UNSHARED, shared
from payments.models import Notification
from payments.webhooks import intake as webhooks
from payments.webhooks import nonces
from tests.integration.payments.channels.conftest import OpenAttempt, counted
from tests.integration.payments.conftest import letter, payment_of

pytestmark = pytest.mark.django_db(transaction=True)


def replayed() -> float:
    """Ask Redis once more, so that its last answer is read and counted."""
    shared(
        "a question", lambda client: ExpiringSet("any", ttl_seconds=1, client=client).add("any"), otherwise=True
    )
    return counted(nonces.REPLAYED, channel="wechat")


def duplicates() -> float:
    return counted(webhooks.RECEIVED, channel="wechat", verdict="duplicate")


def test_the_same_bytes_are_not_a_copy_signed_again(open_attempt: OpenAttempt, redis_server: redis.Redis) -> None:
    attempt = open_attempt()
    first, anew = letter(attempt, notification_id="n"), letter(attempt, notification_id="n")
    before = replayed(), duplicates()
    assert [note.send().status_code for note in (first, anew, first, anew)] == [204] * 4
    assert (replayed(), duplicates()) == (before[0] + 2, before[1] + 3)
    assert payment_of(attempt).paid_minor == 1990


def test_what_redis_remembers_acknowledges_nothing(open_attempt: OpenAttempt, redis_server: redis.Redis) -> None:
    """A restored database gets its notification back from a copy."""
    note = letter(open_attempt(), notification_id="n")
    assert note.send().status_code == 204
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # as a restore does: past every trigger
        Notification.objects.all().delete()
    assert note.send().status_code == 204
    assert Notification.objects.count() == 1


def test_without_redis_every_copy_is_acknowledged(open_attempt: OpenAttempt, away: None) -> None:
    attempt = open_attempt()
    note, before = letter(attempt), (replayed(), counted(UNSHARED, what="notification nonces"))
    # the first question that nobody answers opens the breaker, and the nonces of all are missed
    assert [note.send().status_code for _ in range(3)] == [204] * 3
    assert replayed() == before[0]
    assert counted(UNSHARED, what="notification nonces") == before[1] + 3
    assert payment_of(attempt).paid_minor == 1990
