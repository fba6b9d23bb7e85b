"""What becomes of old entries: bytes go, keys stay, then go; unfinished ones never."""

import base64
from collections.abc import Callable
from datetime import timedelta

import pytest
import redis
from django.db import connection, transaction
from django.db.models import F
from django.test import override_settings

from idempotency.ledger import reaping
from idempotency.maintenance import request_log
from idempotency.maintenance.reaper import reap
from idempotency.models import LedgerAttempt, LedgerEntry
from tests.integration.idempotency.conftest import Caller, Effects
from tests.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]
DAY = timedelta(days=1)

ONE_OLD_AND_MANY_YOUNG = """
WITH row AS (
    SELECT n, now() - (n = 0)::int * interval '91 days' AS at FROM generate_series(0, 5000) AS n
), entry AS (
    INSERT INTO idempotency_ledgerentry (scope, key, fingerprint, mode, state, owner, request_id, fence,
        response_status, response_headers, response_body, created_at, finished_at)
    SELECT 's', n, '', 'atomic', 'finished', '', '', 1, 200, '{}', '', at, at FROM row
), line AS (
    INSERT INTO idempotency_arrival (digest, line_id, at, outcome, request_id, address, outline)
    SELECT '', n, at, 'executed', '', '', '{}' FROM row
)
INSERT INTO idempotency_consumedmessage (consumer, message_id, consumed_at) SELECT 'c', n, at FROM row
"""
ROWS_READ = "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"


def grow_older(age: timedelta) -> None:
    LedgerEntry.objects.update(created_at=F("created_at") - age)
    LedgerEntry.objects.filter(finished_at__isnull=False).update(finished_at=F("finished_at") - age)


def test_the_bytes_are_given_for_a_day_by_redis_and_ledger_even_if_nobody_reaped(
    caller: Caller, effects: Effects, redis_server: redis.Redis
) -> None:
    for age, left in ((0, 24), (23, 1)):
        grow_older(timedelta(hours=age))
        caller.post()
        (name,) = redis_server.keys("*:key:*")
        assert left * 3_600_000 - 10_000 < redis_server.pttl(name) <= left * 3_600_000
        redis_server.flushall()
    grow_older(timedelta(hours=1))
    for _ in range(2):  # and the 410 did not put them back into Redis
        assert caller.post().status_code == 410
    assert effects() == 1


def test_after_ninety_days_the_key_goes_with_its_history(caller: Caller) -> None:
    caller.post()
    caller.post("/phased", key="k2", body={})
    assert LedgerAttempt.objects.count() == 1
    grow_older(89 * DAY)
    assert reap()["tombstones"] == 0
    grow_older(DAY)
    assert reap()["tombstones"] == 2
    assert (LedgerEntry.objects.count(), LedgerAttempt.objects.count()) == (0, 0)


def test_it_works_in_bounded_batches_and_prints_its_progress(caller: Caller) -> None:
    for number in range(5):
        caller.post(key=f"k{number}")
    grow_older(DAY)
    assert reap(batch=1, batches_max=2)["bodies"] == 2, "a call is bounded, and the next goes on"
    grow_older(99 * DAY)
    progress: list[tuple[str, int]] = []
    assert reap(batch=2, on_progress=lambda what, count: progress.append((what, count)))["bodies"] == 3
    assert [count for what, count in progress if what == "bodies"] == [2, 3]
    assert LedgerEntry.objects.count() == 0


def test_a_row_that_someone_holds_is_left_for_the_next_time(caller: Caller) -> None:
    caller.post()
    grow_older(DAY)

    def hold_while_another_reaps() -> int:
        with transaction.atomic():
            LedgerEntry.objects.select_for_update().get()
            return at_once(reap)[0]["bodies"]

    assert hold_while_another_reaps() == 0
    assert reap()["bodies"] == 1


def test_several_reapers_at_once_remove_each_row_once(caller: Caller) -> None:
    for number in range(8):
        caller.post(key=f"k{number}")
    grow_older(DAY)
    counts = at_once(*[lambda: reap(batch=1)["bodies"]] * 3)
    counts.append(reap()["bodies"])  # what one of them held while the others passed
    assert sum(counts) == 8


@pytest.mark.parametrize(
    "step", [reaping.purge_bodies, reaping.drop_tombstones, reaping.drop_messages, request_log.drop_old]
)
def test_what_is_not_old_is_not_read(step: Callable[..., int]) -> None:
    """A ledger of any size costs the same, also where its rows take the place of older ones."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(ONE_OLD_AND_MANY_YOUNG)
        cursor.execute("ANALYZE idempotency_ledgerentry, idempotency_consumedmessage, idempotency_arrival")
        assert step(limit=10) == 1
        read = []
        for _ in range(2):
            cursor.execute(ROWS_READ)
            read.append(cursor.fetchone()[0])
            assert step(limit=10) == 0
        assert read[1] - read[0] <= 200


def test_answers_are_encrypted_on_wish_and_outlive_a_rotation_but_not_their_key(
    caller: Caller, effects: Effects, redis_server: redis.Redis
) -> None:
    old = {"BODY_KEYS": {"2025": base64.b64encode(b"a" * 32).decode()}}
    new = {"BODY_KEYS": {"2026": base64.b64encode(b"b" * 32).decode(), **old["BODY_KEYS"]}}
    plain = caller.post(key="before")  # stored as it is, before there were keys
    with override_settings(IDEMPOTENCY=old):
        first = caller.post()
        assert caller.post(key="before").content == plain.content  # what Redis has of it is not sealed
    assert first.content not in bytes(LedgerEntry.objects.get(key="k1").response_body or b"")
    for _ in range(2):  # what Redis has, then what the ledger has
        again = caller.post()
        assert (again.status_code, again.json()["code"], again["Retry-After"]) == (503, "service_unavailable", "5")
        redis_server.flushall()
    with override_settings(IDEMPOTENCY=new):
        assert caller.post().content == first.content
        assert caller.post(key="before").content == plain.content
    assert effects() == 2
