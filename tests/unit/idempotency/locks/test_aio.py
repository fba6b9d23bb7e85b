"""The locks of asyncio have the names of those of threads."""

from idempotency import locks
from idempotency.locks import aio


def test_every_name_is_there() -> None:
    assert {*aio.__all__} == {*locks.__all__, "close"}
    assert aio.LockError is locks.LockError
