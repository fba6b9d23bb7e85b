"""The time and memory of a call, whatever the provider does; and kept connections."""

import gzip
import itertools
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from payments.errors import OutcomeUnknown, ProviderUnavailable
from payments.providers import deadlines, registry, transport
from payments.sandbox import keys
from payments.sandbox.issuing import new_key_file, self_signed
from tests.ports import free_port
from tests.sandbox import channels_at
from tests.unit.payments.providers.conftest import NUMBER, Answer, Company, Says, alipay_says, signed

CHANNELS = ("wechat", "alipay", "stripe")

HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SIZED, ENDLESS = HEADERS + b"Content-Length: 900000000\r\n\r\n", HEADERS + b"\r\n"


class Endless:
    """An address whose answer goes on, piece after piece, until the caller hangs up.

    One who is still there after `most` pieces was not kept from waiting.
    """

    def __init__(
        self,
        head: bytes,
        piece: bytes,
        *,
        pause_seconds: float = 0.02,
        most: int = 500,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._head, self._piece, self._pause_seconds, self._most = head, piece, pause_seconds, most
        self._tls = tls
        self._listening, self._closing = socket.create_server(("127.0.0.1", 0)), threading.Event()
        self.hung_up = threading.Event()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listening.accept()
        if self._tls:
            connection = self._tls.wrap_socket(connection, server_side=True)
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(self._head)
                for _ in range(self._most):
                    connection.sendall(self._piece)
                    if self._closing.wait(self._pause_seconds):
                        break
            except (ConnectionError, ssl.SSLError):
                self.hung_up.set()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._listening.close()


@pytest.fixture
def at(platform: keys.Keys) -> Iterator[Callable[..., Any]]:
    with ExitStack() as opened:

        def make(channel: str, url: str) -> Any:
            made: Any = registry.build({channel: channels_at(url)[channel]})[channel]
            opened.callback(made._http.close)
            return made

        yield make


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes with each look at the clock, however fast the machine is."""
    monkeypatch.setattr(deadlines, "time", SimpleNamespace(monotonic=itertools.count().__next__))


@pytest.fixture
def endless() -> Iterator[Callable[..., Endless]]:
    with ExitStack() as opened:

        def make(*args: Any, **more: Any) -> Endless:
            return opened.enter_context(closing(Endless(*args, **more)))

        yield make


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The provider's side; ours takes its certificate for genuine."""
    certificate = self_signed("Provider", new_key_file(tmp_path / "key.pem")).public_bytes(Encoding.PEM)
    (tmp_path / "certificate.pem").write_bytes(certificate)
    theirs, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    ours.check_hostname = False
    ours.load_verify_locations(cadata=certificate.decode())
    monkeypatch.setattr(transport, "_authorities", lambda: ours)
    return theirs


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("channel", "head", "piece"),
    [
        *((channel, SIZED, b" ") for channel in (*CHANNELS, "tls", "file")),
        ("wechat", HEADERS, b"x"),
        ("wechat", b"", b"H"),
    ],
    ids=[*CHANNELS, "over TLS", "a file", "headers", "status line"],
)
def test_an_answer_that_drips_is_left(
    request: Any,
    at: Callable[..., Any],
    endless: Callable[..., Endless],
    monkeypatch: pytest.MonkeyPatch,
    channel: str,
    head: bytes,
    piece: bytes,
) -> None:
    """No single wait of ours is too long, all of them together are."""
    server = endless(head, piece, tls=request.getfixturevalue("tls") if channel == "tls" else None)
    provider = at(channel if channel in CHANNELS else "wechat", server.url)
    provider._http.timeout = 10
    monkeypatch.setattr(transport, "DOWNLOAD_SECONDS_MAX", 10)
    ask = partial(provider.query, out_trade_no=NUMBER)
    if channel == "file":
        ask = partial(transport.download, provider._http, f"{server.url}/bill", bytes_max=10**6)
    with pytest.raises(OutcomeUnknown):
        ask()
    assert server.hung_up.wait(30)


@pytest.mark.parametrize(("channel", "head"), [*((channel, SIZED) for channel in CHANNELS), ("wechat", ENDLESS)])
def test_an_answer_that_is_too_large_is_left(
    at: Callable[..., Any], endless: Callable[..., Endless], channel: str, head: bytes
) -> None:
    server = endless(head, b" " * 2**20, pause_seconds=0, most=64)
    with pytest.raises(OutcomeUnknown, match="larger than 8388608 bytes"):
        at(channel, server.url).query(out_trade_no=NUMBER)
    assert server.hung_up.wait(30)


@pytest.mark.parametrize(
    "answer",
    [
        (404, {}, b"gone"),
        (302, {"Location": "http://127.0.0.1:1/"}, b""),
        (500, {}, b""),
        (200, {"Content-Encoding": "gzip"}, gzip.compress(b"packed")),
    ],
    ids=lambda answer: answer[0],
)
def test_what_is_no_whole_file(
    at: Callable[..., Any], company: Company, endless: Callable[..., Endless], answer: Answer
) -> None:
    company.answer = lambda _: answer
    session = at("wechat", company.url)._http
    torn = endless(HEADERS + b"Content-Length: 1000\r\n\r\n", b"torn", most=1)
    for url in (company.url, torn.url):
        with pytest.raises(OutcomeUnknown):
            transport.download(session, f"{url}/bill", bytes_max=5000)
    assert len(company.asked) == 1
    with pytest.raises(ProviderUnavailable):  # where nobody listens nothing was sent
        transport.download(session, f"http://127.0.0.1:{free_port()}/bill", bytes_max=10)


def genuine(channel: str) -> Says:
    if channel == "wechat":
        return signed({"trade_state": "NOTPAY", "out_trade_no": NUMBER})
    if channel == "alipay":
        trade = {"code": "10000", "out_trade_no": NUMBER, "trade_status": "WAIT_BUYER_PAY"}
        return alipay_says("alipay.trade.query", trade)
    return lambda _: (200, {}, b'{"object": "search_result", "data": [], "has_more": false}')


@pytest.mark.parametrize("channel", CHANNELS)
def test_two_calls_go_over_one_connection(at: Callable[..., Any], company: Company, channel: str) -> None:
    provider = at(channel, company.url)
    company.answer = genuine(channel)
    for _ in range(2):
        provider.query(out_trade_no=NUMBER)
    assert (len(company.asked), len(company.callers)) == (2, 1)
