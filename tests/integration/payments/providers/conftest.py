"""A sandbox for the session, our providers towards it, and a listener."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import httpx
import pytest

from idempotency.ids import new_id
from payments.providers import registry
from payments.providers.actions import NextAction
from payments.providers.base import Provider
from payments.testing.relay import Endpoint, Reply
from tests.sandbox import Sandbox, a_sandbox
from tests.unit.payments.providers.conftest import create
from tests.unit.payments.providers.conftest import refund as give_back


def asked(provider: Any, number: str, **changed: Any) -> NextAction:
    """A trade of 19.90, payable for half an hour; at Alipay it begins when the shopper arrives."""
    wanted = {"out_trade_no": number, "expires_at": datetime.now(UTC) + timedelta(minutes=30)}
    action: NextAction = create(provider, **{**wanted, **changed})
    return action


def opened(provider: Any, number: str, **changed: Any) -> NextAction:
    """The same, and the shopper has arrived."""
    action = asked(provider, number, **changed)
    if action.url.startswith("http"):
        httpx.get(action.url, follow_redirects=True, trust_env=False).raise_for_status()
    return action


@cache
def towards(sandbox: Sandbox) -> dict[str, Any]:
    built: dict[str, Any] = registry.build(sandbox.channels())
    return built


def waiting(sandbox: Sandbox, **changed: Any) -> str:
    """The number of a new trade of WeChat's that waits to be paid."""
    asked(towards(sandbox)["wechat"], number := new_id().hex, **changed)
    return number


def refund(provider: Any, number: str, refund_number: str, amount_minor: int, **changed: Any) -> Any:
    wanted = {"out_trade_no": number, "out_refund_no": refund_number, "amount_minor": amount_minor}
    return give_back(provider, **wanted, reason="changed mind", **changed)


@pytest.fixture
def number() -> str:
    return new_id().hex


sandbox_process = pytest.fixture(a_sandbox, scope="session")


@pytest.fixture
def sandbox(sandbox_process: Sandbox) -> Iterator[Sandbox]:
    """The session's sandbox, behaving well before and after."""
    sandbox_process.reset_faults()
    yield sandbox_process
    sandbox_process.reset_faults()


@pytest.fixture(params=["wechat", "alipay", "stripe"])
def provider(request: pytest.FixtureRequest, sandbox: Sandbox) -> Provider:
    provider: Provider = towards(sandbox)[request.param]
    return provider


class Listener(Endpoint):
    """Takes notifications in; `next()` waits for one: (headers, body)."""

    def __init__(self) -> None:
        super().__init__(Reply(status=200, body=b"success"))


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.stop()
