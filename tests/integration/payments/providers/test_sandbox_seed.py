"""The sandbox's misbehaviour follows from its seed, also after it was started anew."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.payments.providers.conftest import waiting
from tests.sandbox import Sandbox

HALF = {"drop_rate": 0.5, "http_500_rate": 0.5}
ROUNDS = 24


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path)
    yield made
    made.stop()


def met(sandbox: Sandbox, *, seed: int | None = None) -> str:
    """What becomes of calls and notifications, in turn: ``5`` is a 500, ``x`` a lost copy, ``.`` none of both."""
    numbers = opened(sandbox)
    sandbox.faults(**HALF, **({} if seed is None else {"seed": seed}))
    return "".join(fate for number in numbers for fate in (of_a_call(sandbox), of_a_notification(sandbox, number)))


def of_a_call(sandbox: Sandbox) -> str:
    return "5" if sandbox.http.get("/wechat/v3/certificates").status_code == 500 else "."


def of_a_notification(sandbox: Sandbox, number: str) -> str:
    before = lost(sandbox)
    sandbox.pay(number)
    return "x" if lost(sandbox) > before else "."


def lost(sandbox: Sandbox) -> int:
    return int(sandbox.http.get("/_control/deliveries").json()["lost"])


def opened(sandbox: Sandbox) -> list[str]:
    """Trades that wait to be paid."""
    sandbox.faults(**dict.fromkeys(HALF, 0))
    return [waiting(sandbox) for _ in range(ROUNDS)]


def test_the_same_seed_is_the_same_faults_after_a_new_start_too(sandbox: Sandbox, tmp_path: Path) -> None:
    other, first = met(sandbox, seed=8), met(sandbox, seed=7)
    assert (first != other, set(first)) == (True, {"5", "x", "."})
    sandbox.stop()
    anew = Sandbox(tmp_path)
    try:
        assert met(anew) == first
    finally:
        anew.stop()
