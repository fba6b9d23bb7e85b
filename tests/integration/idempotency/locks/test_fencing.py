"""A holder that stood still while its lock went to another: the database refuses its write."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction

from idempotency.locks.errors import LockLost
from idempotency.locks.postgres import StaleToken, write_fenced
from tests import pages
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.mutexes import asked, terminate
from tests.integration.idempotency.locks.processes import Pool, account_model, account_table, hands, write

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def account(transactional_db: None) -> Iterator[Callable[[], tuple[int, int]]]:
    """(balance, fence) of the one account, as committed."""
    with account_table(1) as model:
        yield lambda: model.objects.values_list("balance", "fence").get(pk=1)


@pytest.mark.parametrize(("kind", "lease"), [("Lock", "lease_seconds=0.3"), ("AdvisoryLock", "")])
def test_a_holder_that_stood_still_while_its_lock_went_to_another_is_refused(
    account: Any, pool: Pool, kind: str, lease: str
) -> None:
    stale, later = hands(pool(2), os.environ["REDIS_URL"], kind)[1]
    write_as_holder = "write(lock.token, {})".format
    assert stale.do(f"lock.acquire({lease})")
    first = stale.do("lock.token")
    stale.do(write_as_holder(100))
    stale.stop()
    for late in (write_as_holder(666), "lock.release()"):
        stale.begin(late)
    if kind == "AdvisoryLock":
        terminate()  # and in Redis the lease ends
    assert later.do("lock.acquire()")
    second = later.do("lock.token")
    assert second > first
    later.do(write_as_holder(200))
    stale.go_on()
    with pytest.raises(StaleToken):
        stale.answer()
    with pytest.raises(LockLost):
        stale.answer()
    assert account() == (200, second)
    later.do("lock.release()")


def test_a_late_write_waits_for_the_row_and_then_is_refused(account: Any, pool: Pool) -> None:
    (stale,) = pool(1)
    with transaction.atomic():
        write(8, 200)
        stale.begin(write, 7, 666)
        until(lambda: asked("SELECT pid FROM pg_locks WHERE NOT granted"))
    with pytest.raises(StaleToken):
        stale.result()
    assert account() == (200, 8)


def test_the_holder_itself_writes_as_often_as_it_likes_and_sets_no_fence_of_its_own(account: Any) -> None:
    for balance in (100, 150):
        write(7, balance)
    write_fenced(account_model().objects.filter(pk=1), token=7, balance=1, fence=99)
    assert account() == (1, 7)


def test_one_statement_that_joins_the_callers_transaction_and_may_fail_in_it(
    account: Any, django_assert_num_queries: Callable[[int], Any]
) -> None:
    with transaction.atomic():
        with django_assert_num_queries(1):
            write(7, 100)
        transaction.set_rollback(True)
    assert account() == (0, 0)
    with django_assert_num_queries(1):
        write(8, 200)
    with transaction.atomic():
        with pytest.raises(StaleToken):
            write(7, 666)
        write(9, 300)
    assert account() == (300, 9)


def test_the_page_writes_under_its_lock(account: Callable[[], tuple[int, int]]) -> None:
    (example,) = pages.blocks("docs/how-to/take-a-lock.md")
    built: list[bool] = []
    given = {"Report": account_model(), "build": lambda: built.append(True), "text": 5}
    pages.run(example.replace("body=", "balance="), **given)
    balance, fence = account()
    assert (built, balance, fence > 0) == ([True], 5, True)
