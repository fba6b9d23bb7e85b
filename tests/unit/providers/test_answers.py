"""Answers that prove nothing: unsigned, stale, torn or of another shape; and settings that name themselves."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from payments.errors import OutcomeUnknown, ProviderRejected, SignatureInvalid
from payments.providers import registry, rsa
from payments.providers.alipay import Alipay, signed_member, signed_text
from payments.providers.base import RefundStatus, TradeStatus
from payments.providers.wechat import WeChatPay, answer_message
from payments.sandbox import keys, state

NUMBER = "a" * 32
Answer = tuple[int, dict[str, str], bytes]


class Company:
    """A provider's address that answers whatever it is told to."""

    def __init__(self) -> None:
        self.answer: Callable[[bytes], Answer] = lambda body: (200, {}, b"{}")
        self.asked: list[tuple[str, dict[str, str]]] = []
        company = self

        class Handler(BaseHTTPRequestHandler):
            def respond(self) -> None:
                company.asked.append((self.path, dict(self.headers.items())))
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, answer = company.answer(body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = respond  # noqa: N815  the names that http.server calls

            def log_message(self, *args: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def company() -> Iterator[Company]:
    made = Company()
    yield made
    made.stop()


def channels(company: Company) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    addresses = {"WECHAT_API_URL": company.url, "ALIPAY_GATEWAY_URL": f"{company.url}/gateway.do"}
    for name, value in {**state.keys().settings, **addresses}.items():
        channel, _, field = name.partition("_")
        found.setdefault(channel.lower(), {})[field] = value
    return found


@pytest.fixture
def wechat(platform: keys.Keys, company: Company) -> Iterator[WeChatPay]:
    built: Any = registry.build(channels(company))
    yield built["wechat"]
    for provider in built.values():
        provider._http.close()


@pytest.fixture
def alipay(platform: keys.Keys, company: Company) -> Iterator[Alipay]:
    built: Any = registry.build(channels(company))
    yield built["alipay"]
    for provider in built.values():
        provider._http.close()


def signed(document: Any, *, status: int = 200, age_seconds: int = 0) -> Callable[[bytes], Answer]:
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


def alipay_says(method: str, document: Any, *, forge: bool = False) -> Callable[[bytes], Answer]:
    """An answer of Alipay's, genuinely signed unless forged."""
    raw = json.dumps(document, ensure_ascii=False)
    sign = rsa.sign((raw + ("x" if forge else "")).encode(), state.keys().alipay)
    name = method.replace(".", "_") + "_response" if method != "error" else "error_response"
    return lambda _: (200, {}, f'{{ "{name}" : {raw}, "sign":"{sign}"}}'.encode())


@pytest.mark.parametrize(
    "answer",
    [
        lambda: lambda _: (200, {}, b'{"trade_state":"SUCCESS"}'),
        lambda: lambda _: (404, {}, b'{"code":"ORDER_NOT_EXIST"}'),
        lambda: signed({"trade_state": "NOTPAY"}, age_seconds=301),
        lambda: signed({"trade_state": "NOTPAY"}, age_seconds=-302),
        lambda: signed(b"not json"),
        lambda: signed({"trade_state": "SUCCESS"}),
        lambda: signed({"trade_state": "SUCCESS", "mchid": 5}),
        lambda: signed(
            {
                **dict.fromkeys(("mchid", "out_trade_no", "transaction_id"), "x"),
                "trade_state": "SUCCESS",
                "amount": {"total": "1", "currency": "CNY"},
            }
        ),
        lambda: lambda _: (302, {"Location": "http://127.0.0.1:1/"}, b""),
        lambda: lambda _: (502, {}, b""),
    ],
)
def test_wechat_answers_that_prove_nothing(wechat: WeChatPay, company: Company, answer: Any) -> None:
    company.answer = answer()
    with pytest.raises(OutcomeUnknown):
        wechat.query(out_trade_no=NUMBER)


def test_wechat_states_and_refusals(wechat: WeChatPay, company: Company) -> None:
    for told, expected in [
        ("NOTPAY", TradeStatus.PENDING),
        ("USERPAYING", TradeStatus.PENDING),
        ("NEW_STATE", TradeStatus.PENDING),
        ("CLOSED", TradeStatus.CLOSED),
        ("REVOKED", TradeStatus.CLOSED),
    ]:
        company.answer = signed({"trade_state": told})
        assert wechat.query(out_trade_no=NUMBER).status is expected
    for code in ("ORDER_NOT_EXIST", "ORDERNOTEXIST"):
        company.answer = signed({"code": code, "message": "no"}, status=404)
        assert wechat.query(out_trade_no=NUMBER).status is TradeStatus.NOT_FOUND
        assert wechat.close(out_trade_no=NUMBER).status is TradeStatus.CLOSED
    company.answer = signed({"code": "FREQUENCY_LIMITED", "message": "slow down"}, status=429)
    for call in (wechat.query, wechat.close):
        with pytest.raises(ProviderRejected, match="FREQUENCY_LIMITED"):
            call(out_trade_no=NUMBER)
    with pytest.raises(ProviderRejected):
        wechat.query_refund(out_trade_no=NUMBER, out_refund_no=NUMBER)
    company.answer = signed({"status": "PROCESSING"})
    assert wechat.query_refund(out_trade_no=NUMBER, out_refund_no=NUMBER).status is RefundStatus.PROCESSING
    company.answer = signed({"status": "ABNORMAL"})
    assert wechat.query_refund(out_trade_no=NUMBER, out_refund_no=NUMBER).status is RefundStatus.FAILED


def test_wechat_names_its_public_key_so_that_the_platform_signs_with_it(
    wechat: WeChatPay, company: Company
) -> None:
    company.answer = signed({"trade_state": "NOTPAY"})
    wechat.query(out_trade_no=NUMBER)
    path, headers = company.asked[0]
    assert path.startswith(f"/v3/pay/transactions/out-trade-no/{NUMBER}?mchid=")
    assert headers["Wechatpay-Serial"] == state.keys().public_key_id
    assert headers["Authorization"].startswith("WECHATPAY2-SHA256-RSA2048 mchid=")


def test_an_answer_that_does_not_come_in_time_is_unknown(wechat: WeChatPay, company: Company) -> None:
    done = threading.Event()

    def never(_: bytes) -> Answer:
        done.wait(30)
        return 200, {}, b""

    company.answer = never
    wechat._http.timeout = 0.05
    try:
        with pytest.raises(OutcomeUnknown):
            wechat.query(out_trade_no=NUMBER)
    finally:
        done.set()


QUERY = "alipay.trade.query"


@pytest.mark.parametrize(
    "answer",
    [
        lambda: lambda _: (200, {}, b"<html>"),
        lambda: lambda _: (200, {}, b"[]"),
        lambda: lambda _: (200, {}, b'{"alipay_trade_query_response":{"code":"10000"}}'),
        lambda: alipay_says(QUERY, {"code": "10000", "trade_status": "TRADE_SUCCESS"}, forge=True),
        lambda: alipay_says(QUERY, {"code": "10000", "trade_status": "TRADE_SUCCESS"}),
        lambda: alipay_says(QUERY, {"code": "10000"}),
        lambda: alipay_says(QUERY, {"code": "20000", "msg": "unavailable"}),
        lambda: alipay_says(QUERY, {"code": "40004", "sub_code": "ACQ.SYSTEM_ERROR"}),
    ],
)
def test_alipay_answers_that_prove_nothing(alipay: Alipay, company: Company, answer: Any) -> None:
    company.answer = answer()
    with pytest.raises(OutcomeUnknown):
        alipay.query(out_trade_no=NUMBER)


def test_alipay_states_and_refusals(alipay: Alipay, company: Company) -> None:
    trade = {"code": "10000", "out_trade_no": NUMBER, "trade_no": "20", "total_amount": "19.90"}
    for told, expected in [
        ({"trade_status": "WAIT_BUYER_PAY"}, TradeStatus.PENDING),
        ({"trade_status": "TRADE_FINISHED"}, TradeStatus.PAID),
        ({"trade_status": "TRADE_CLOSED"}, TradeStatus.CLOSED),
        ({"trade_status": "TRADE_CLOSED", "send_pay_date": "2026-11-20 12:00:00"}, TradeStatus.PAID),
    ]:
        company.answer = alipay_says(QUERY, {**trade, **told})
        assert alipay.query(out_trade_no=NUMBER).status is expected
    company.answer = alipay_says("error", {"code": "40001", "sub_code": "isv.missing-method", "sub_msg": "{no}"})
    for call in (alipay.query, alipay.close):
        with pytest.raises(ProviderRejected, match=r"isv\.missing-method"):
            call(out_trade_no=NUMBER)
    with pytest.raises(ProviderRejected):
        alipay.query_refund(out_trade_no=NUMBER, out_refund_no=NUMBER)
    refund_query = "alipay.trade.fastpay.refund.query"
    for document in ({"code": "40004", "sub_code": "ACQ.TRADE_NOT_EXIST"}, {"code": "10000"}):
        company.answer = alipay_says(refund_query, document)
        assert alipay.query_refund(out_trade_no=NUMBER, out_refund_no=NUMBER).status is RefundStatus.NOT_FOUND


@pytest.mark.parametrize(
    "member",
    ['{"a":"}"}', '{"a":"\\"}"}', '{"a":"\\\\"}', '{"a": [1, {"b": "]{"}], "c": "收据"}', "{}"],
)
def test_the_signed_part_is_taken_as_it_stands(member: str) -> None:
    assert signed_member(f'{{"x_response": {member},"sign":"s"}}', "x_response") == member
    assert signed_member(f'{{"sign":"s" , "x_response"  :\n{member}}}', "x_response") == member


@pytest.mark.parametrize("answer", ["{}", '{"x_response":', '{"x_response": {"a"'])
def test_a_torn_answer_has_no_signed_part(answer: str) -> None:
    with pytest.raises(ValueError):
        signed_member(answer, "x_response")


def test_the_signed_text_is_sorted_and_leaves_out_what_is_empty() -> None:
    assert signed_text({"b": "2", "a": "1", "c": "", "sign": "x"}) == b"a=1&b=2"


@pytest.mark.parametrize(
    ("channel", "field", "value", "named"),
    [
        ("wechat", "API_V3_KEY", "short", "WECHAT_API_V3_KEY must have 32 bytes"),
        ("wechat", "MCH_KEY_FILE", "/nowhere.pem", "WECHAT_MCH_KEY_FILE: /nowhere.pem cannot be read"),
        ("wechat", "MCH_KEY_FILE", __file__, "WECHAT_MCH_KEY_FILE"),
        ("wechat", "PLATFORM_KEYS_DIR", "/nowhere", "WECHAT_PLATFORM_KEYS_DIR: /nowhere is not a folder"),
        ("wechat", "MCH_ID", "", "WECHAT_MCH_ID is not set"),
        ("alipay", "PUBLIC_KEY_FILE", "/nowhere.pem", "ALIPAY_PUBLIC_KEY_FILE"),
        ("alipay", "APP_KEY_FILE", __file__, "ALIPAY_APP_KEY_FILE"),
    ],
)
def test_a_wrong_setting_is_named(
    platform: keys.Keys, company: Company, channel: str, field: str, value: str, named: str
) -> None:
    settings = channels(company)
    settings[channel][field] = value
    with pytest.raises(registry.ConfigError) as caught:
        registry.build(settings)
    assert named in str(caught.value)
    assert "PRIVATE KEY" not in str(caught.value)


def test_platform_keys_must_be_named_by_serial(platform: keys.Keys, company: Company, tmp_path: Path) -> None:
    settings = channels(company)
    settings["wechat"]["PLATFORM_KEYS_DIR"] = str(tmp_path)
    with pytest.raises(registry.ConfigError, match=r"holds no \.pem file"):
        registry.build(settings)
    (tmp_path / "platform.pem").write_text("x")
    with pytest.raises(registry.ConfigError, match=r"platform\.pem"):
        registry.build(settings)
    with pytest.raises(registry.ConfigError, match="coins"):
        registry.build({"coins": {}})


def test_keys_are_never_shown(wechat: WeChatPay, alipay: Alipay) -> None:
    for provider in (wechat, alipay):
        assert "PRIVATE KEY" not in repr(provider.config)
    assert state.keys().settings["WECHAT_API_V3_KEY"] not in repr(wechat.config)
    with pytest.raises(SignatureInvalid):
        wechat._verify({}, b"", now=0)
