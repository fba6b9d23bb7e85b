"""A holder that stood still while its lock went to another: the database refuses its write."""

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from idempotency.locks import Lock
from idempotency.locks.errors import LockLost
from idempotency.locks.postgres import AdvisoryLock, StaleToken, write_fenced
from tests import pages
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.database_processes import Process, account_model, account_table, processes

pytestmark = pytest.mark.django_db(transaction=True)

LOCK = AdvisoryLock("account 1")


@pytest.fixture
def account(transactional_db: None) -> Iterator[Callable[[], tuple[int, int]]]:
    """(balance, fence) of the one account, as committed."""
    with account_table(1) as model:
        yield lambda: model.objects.values_list("balance", "fence").get(pk=1)


@pytest.fixture
def start(transactional_db: None) -> Iterator[Callable[[int], list[Process]]]:
    with processes() as starter:
        yield starter


def write(token: int, balance: int) -> None:
    write_fenced(account_model().objects.filter(pk=1), token=token, balance=balance)


def take() -> Any:
    assert LOCK.acquire()
    return LOCK.token


def write_under_the_lock(balance: int) -> None:
    token = LOCK.token
    assert token is not None
    write(token, balance)


def give() -> None:
    LOCK.release()


def take_in_redis(lease_seconds: float | None) -> Any:
    lock = Lock("account 1")  # of the Redis that the settings name
    assert lock.acquire(lease_seconds=lease_seconds)
    return lock.token


def write_under_the_lock_in_redis(balance: int) -> None:
    token = Lock("account 1").token
    assert token is not None
    write(token, balance)


def give_in_redis() -> None:
    Lock("account 1").release()


def somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


def test_a_holder_that_stood_still_is_refused(account: Any, start: Any) -> None:
    stale, later = start(2)
    stale.do(write, 7, 100)
    stale.send(signal.SIGSTOP)
    stale.begin(write, 7, 666)
    later.do(write, 8, 200)
    stale.send(signal.SIGCONT)
    with pytest.raises(StaleToken):
        stale.result()
    assert account() == (200, 8)


def test_a_holder_that_stood_still_while_its_session_ended_is_refused(account: Any, start: Any) -> None:
    stale, later = start(2)
    first = stale.do(take)
    stale.do(write_under_the_lock, 100)
    stale.send(signal.SIGSTOP)
    stale.begin(write_under_the_lock, 666)
    stale.begin(give)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        )
        assert cursor.fetchall() == [(True,)]
    second = later.do(take)
    assert second > first
    later.do(write_under_the_lock, 200)
    stale.send(signal.SIGCONT)
    with pytest.raises(StaleToken):
        stale.result()
    with pytest.raises(LockLost):
        stale.result()
    assert account() == (200, second)
    later.do(give)


def test_a_holder_that_stood_still_past_its_lease_in_redis_is_refused(account: Any, start: Any) -> None:
    stale, later = start(2)
    first = stale.do(take_in_redis, 0.3)
    stale.do(write_under_the_lock_in_redis, 100)
    stale.send(signal.SIGSTOP)
    stale.begin(write_under_the_lock_in_redis, 666)
    stale.begin(give_in_redis)
    second = later.do(take_in_redis, None)  # gets in when the lease is over
    assert second > first
    later.do(write_under_the_lock_in_redis, 200)
    stale.send(signal.SIGCONT)
    with pytest.raises(StaleToken):
        stale.result()
    with pytest.raises(LockLost):
        stale.result()
    assert account() == (200, second)
    later.do(give_in_redis)


def test_a_late_write_waits_for_the_row_and_then_is_refused(account: Any, start: Any) -> None:
    """The condition is asked again after the wait: what it was before the later holder's commit does not count."""
    (stale,) = start(1)
    with transaction.atomic():
        write(8, 200)
        stale.begin(write, 7, 666)
        until(somebody_waits)
    with pytest.raises(StaleToken):
        stale.result()
    assert account() == (200, 8)


def test_the_holder_itself_writes_as_often_as_it_likes(account: Any) -> None:
    write(7, 100)
    write(7, 150)
    assert account() == (150, 7)


def test_one_statement_and_it_joins_the_callers_transaction(
    account: Any, django_assert_num_queries: Callable[[int], Any]
) -> None:
    with transaction.atomic():
        with django_assert_num_queries(1):
            write(7, 100)
        transaction.set_rollback(True)
    assert account() == (0, 0)
    with django_assert_num_queries(1):
        write(7, 100)


def test_refused_within_a_transaction_that_goes_on(account: Any) -> None:
    write(8, 200)
    with transaction.atomic():
        with pytest.raises(StaleToken):
            write(7, 666)
        write(9, 300)
    assert account() == (300, 9)


def test_the_changes_do_not_set_the_fence(account: Any) -> None:
    write_fenced(account_model().objects.filter(pk=1), token=7, balance=1, fence=99)
    assert account() == (1, 7)


def test_the_page_writes_under_its_lock(account: Callable[[], tuple[int, int]]) -> None:
    (example,) = pages.blocks("docs/how-to/take-a-lock.md")
    built: list[bool] = []
    given = {"Report": account_model(), "build": lambda: built.append(True), "text": 5}
    pages.run(example.replace("body=", "balance="), **given)
    balance, fence = account()
    assert (built, balance, fence > 0) == ([True], 5, True)
