"""The ledger's epoch: after a restore Redis answers for nothing that is gone."""

from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from idempotency import ledger
from idempotency.ledger import claiming
from idempotency.models import LedgerEntry, LedgerEpoch
from idempotency.redis.paid_marker import PaidMarker
from tests.integration.idempotency.conftest import Caller, Effects

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]


@pytest.fixture(autouse=True)
def _as_it_is() -> None:
    """Read from the database, as by a process that has just started."""
    claiming.use_local_epoch(None)


def restore() -> None:
    """The database goes back to a moment before the call; Redis does not."""
    LedgerEntry.objects.all().delete()
    Group.objects.all().delete()


def time_passes(seconds: float) -> None:
    for base, (read_at, made) in claiming._epochs.items():
        claiming._epochs[base] = read_at - seconds, made


def reads_of(call: Callable[[], object]) -> int:
    """How often `call` asks the database for the epoch."""
    with CaptureQueriesContext(connection) as captured:
        call()
    return sum("idempotency_ledgerepoch" in query["sql"] for query in captured.captured_queries)


def is_replay(answer: Any) -> bool:
    return answer.headers.get("Idempotent-Replayed") == "true"


@pytest.mark.parametrize("path", ["/things", "/phased"])
def test_after_forget_redis_a_key_whose_effect_is_gone_is_executed(
    caller: Caller, effects: Effects, redis_server: redis.Redis, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    caller.post(path)
    restore()
    assert is_replay(caller.post(path))  # Redis does not know better
    assert effects() == 0
    call_command("idempotency", "forget-redis")
    assert "another 10 s, and not longer" in capsys.readouterr().out
    first = caller.post(path)
    assert (is_replay(first), effects()) == (False, 1)
    assert caller.post(path).content == first.content
    assert effects() == 1


def test_another_process_believes_the_past_for_ten_seconds_and_not_longer(
    caller: Caller, effects: Effects, redis_server: redis.Redis
) -> None:
    caller.post()
    restore()
    LedgerEpoch.objects.update(value="of-the-command-elsewhere")
    time_passes(claiming.EPOCH_SECONDS - 5)
    assert is_replay(caller.post())
    time_passes(5)
    assert not is_replay(caller.post())
    assert effects() == 1


def test_it_costs_one_question_in_ten_seconds(caller: Caller, redis_server: redis.Redis) -> None:
    ledger.renew_epoch()  # the tests before have emptied its table
    assert reads_of(lambda: caller.post(key="1")) == 1
    assert reads_of(lambda: [caller.post(key=key) for key in ("1", "2", "3")]) == 0
    time_passes(claiming.EPOCH_SECONDS)
    assert reads_of(lambda: [caller.post(key=key) for key in ("1", "4")]) == 1


def test_marks_of_facts_that_are_gone_are_forgotten(redis_server: redis.Redis) -> None:
    mark = PaidMarker(kind="tested")
    mark.put("1", "7")
    assert mark.get("1") == "7"
    ledger.renew_epoch()
    assert mark.get("1") is None


def test_an_epoch_is_never_used_twice_whatever_was_restored(redis_server: redis.Redis) -> None:
    """What a restore brings back is an earlier epoch, whose successor has been used."""
    before = ledger.renew_epoch()
    after = ledger.renew_epoch()
    LedgerEpoch.objects.update(value=before)
    assert ledger.renew_epoch() not in {before, after}


def test_an_emptied_ledger_begins_another_epoch(caller: Caller, redis_server: redis.Redis) -> None:
    seen = {ledger.renew_epoch()}
    for _ in range(2):
        LedgerEpoch.objects.all().delete()
        time_passes(claiming.EPOCH_SECONDS)
        caller.post()
        seen.add(LedgerEpoch.objects.get().value)
    assert len(seen) == 3


def test_there_is_one() -> None:
    ledger.renew_epoch()
    with pytest.raises(IntegrityError, match="ledger_epoch_is_one"):
        LedgerEpoch.objects.create(id=2, value="second")
