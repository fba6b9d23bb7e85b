"""A provider's address that answers as the test says, and our providers towards it."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from payments.providers import registry, rsa
from payments.providers.alipay.client import Alipay
from payments.providers.stripe.client import StripeIntents
from payments.providers.wechat.client import WeChatPay
from payments.providers.wechat.signing import answer_message
from payments.sandbox import keys, state
from payments.testing.relay import Reply, Server
from tests.sandbox import channels_at

Answer = tuple[int, dict[str, str], bytes]
Says = Callable[[bytes], Answer]

NUMBER, REFUND_NUMBER = "a" * 32, "b" * 32


class Company(Server):
    """A provider's address: it answers as `answer` says, else with the JSON of `says`, by path."""

    def __init__(self) -> None:
        self.begin()
        super().__init__(self._serve)

    def begin(self) -> None:
        """Know nothing of what was before."""
        self.answer: Says = self._said
        self.says: dict[str, tuple[int, object]] = {"": (200, {})}
        self.calls: list[str] = []
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.bodies: list[bytes] = []
        self.here = threading.local()  # its `path` is the one that is being answered by this thread
        self.callers: set[Any] = set()  # an address for each connection

    def _serve(self, asked: BaseHTTPRequestHandler, body: bytes) -> Reply:
        self.here.path = asked.path
        self.callers.add(asked.client_address)
        self.calls.append(f"{asked.command} {asked.path}")
        self.asked.append((asked.path, dict(asked.headers.items())))
        self.bodies.append(body)
        status, headers, answer = self.answer(body)
        return Reply(status=status, headers=headers, body=answer)

    def _said(self, body: bytes) -> Answer:
        status, document = self.says.get(self.here.path) or self.says[""]
        return status, {}, json.dumps(document).encode()


@pytest.fixture
def company() -> Iterator[Company]:
    """One of the test's own, which other rooms import and stop."""
    made = Company()
    yield made
    made.stop()


@cache
def _listening() -> Company:
    return Company()


@pytest.fixture(name="company")
def the_company() -> Company:
    """The session's, as new; so `providers` are built once."""
    made = _listening()
    made.begin()
    return made


def channels(company: Company) -> dict[str, dict[str, str]]:
    return channels_at(company.url)


@cache
def _built(url: str) -> Any:
    return registry.build(channels_at(url))


@pytest.fixture
def providers(platform: keys.Keys, company: Company) -> dict[str, Any]:
    built: dict[str, Any] = _built(company.url)
    return built


@pytest.fixture
def wechat(providers: dict[str, Any]) -> WeChatPay:
    built: WeChatPay = providers["wechat"]
    return built


@pytest.fixture
def alipay(providers: dict[str, Any]) -> Alipay:
    built: Alipay = providers["alipay"]
    return built


@pytest.fixture
def stripe(providers: dict[str, Any]) -> StripeIntents:
    built: StripeIntents = providers["stripe"]
    return built


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        pytest.fail("reading a notification called out")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def create(provider: Any, **changed: Any) -> Any:
    wanted = {
        "out_trade_no": NUMBER,
        "amount_minor": 1990,
        "currency": "CNY",
        "description": "杯子",
        "notify_url": "http://127.0.0.1:1/n",
        "return_url": "http://127.0.0.1:1/back",
        "expires_at": datetime(2026, 11, 20, 4, tzinfo=UTC),
    }
    return provider.create(**{**wanted, **changed})


def refund(provider: Any, **changed: Any) -> Any:
    wanted = {
        "out_trade_no": NUMBER,
        "out_refund_no": REFUND_NUMBER,
        "amount_minor": 990,
        "paid_minor": 1990,
        "currency": "CNY",
        "reason": "",
        "notify_url": "http://127.0.0.1:1/n",
    }
    return provider.refund(**{**wanted, **changed})


def signed(document: Any, *, status: int = 200, age_seconds: int = 0) -> Says:
    """An answer of WeChat's, genuinely signed."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    timestamp = str(int(time.time()) - age_seconds)
    signature = rsa.sign(answer_message(timestamp=timestamp, nonce="n", body=body), state.keys().platform)
    headers = {
        "Wechatpay-Timestamp": timestamp,
        "Wechatpay-Nonce": "n",
        "Wechatpay-Signature": signature,
        "Wechatpay-Serial": state.keys().platform_serial,
    }
    return lambda _: (status, headers, body)


def unpaid(company: Company) -> Says:
    """WeChat's answer to a query, that the trade is open; also an answer to its closing."""

    def answer(body: bytes) -> Answer:
        number = company.here.path.partition("/out-trade-no/")[2].partition("?")[0]
        return signed({"trade_state": "NOTPAY", "out_trade_no": number})(body)

    return answer


def stripe_says(document: Any, *, status: int = 200) -> Says:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return lambda _: (status, {"Content-Type": "application/json"}, body)


def stripe_lists(*found: Any) -> Says:
    return stripe_says({"object": "list", "data": found, "has_more": False, "url": "/v1"})


def alipay_says(method: str, document: Any, *, forge: bool = False, key: Any = None, cert_sn: Any = None) -> Says:
    """An answer of Alipay's, signed unless forged; with `cert_sn` it names a certificate."""
    raw = json.dumps(document, ensure_ascii=False)
    sign = rsa.sign((raw + ("x" if forge else "")).encode(), key or state.keys().alipay)
    name = method.replace(".", "_") + "_response" if method != "error" else "error_response"
    named = "" if cert_sn is None else f'"alipay_cert_sn": {json.dumps(cert_sn)},'
    return lambda _: (200, {}, f'{{ "{name}" : {raw}, {named} "sign":"{sign}"}}'.encode())
