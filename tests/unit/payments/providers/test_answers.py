"""Answers that prove nothing: unsigned, stale, torn or of another shape; and settings that name themselves."""

import threading
from pathlib import Path
from typing import Any

import pytest

from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable, SignatureInvalid
from payments.providers import registry
from payments.providers.alipay.client import Alipay
from payments.providers.alipay.signing import signed_member, signed_text
from payments.providers.base import RefundStatus, TradeStatus
from payments.providers.wechat.client import WeChatPay
from payments.sandbox import keys, state
from tests.unit.payments.providers.conftest import Answer, Company, alipay_says, channels, signed, unpaid

NUMBER = "a" * 32


@pytest.mark.parametrize(
    "answer",
    [
        lambda: lambda _: (200, {}, b'{"trade_state":"SUCCESS"}'),
        lambda: lambda _: (404, {}, b'{"code":"ORDER_NOT_EXIST"}'),
        lambda: signed({"trade_state": "NOTPAY", "out_trade_no": NUMBER}, age_seconds=301),
        lambda: signed({"trade_state": "NOTPAY", "out_trade_no": NUMBER}, age_seconds=-302),
        lambda: signed(b"not json"),
        lambda: signed({"trade_state": "SUCCESS", "out_trade_no": NUMBER}),
        lambda: signed({"trade_state": "SUCCESS", "out_trade_no": NUMBER, "mchid": 5}),
        lambda: signed(
            {
                **dict.fromkeys(("mchid", "transaction_id"), "x"),
                "out_trade_no": NUMBER,
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
        company.answer = signed({"trade_state": told, "out_trade_no": NUMBER})
        assert wechat.query(out_trade_no=NUMBER).status is expected
    for code in ("ORDER_NOT_EXIST", "ORDERNOTEXIST"):
        company.answer = signed({"code": code, "message": "no"}, status=404)
        assert wechat.query(out_trade_no=NUMBER).status is TradeStatus.NOT_FOUND
        assert wechat.close(out_trade_no=NUMBER).status is TradeStatus.CLOSED
    company.answer = signed({"code": "FREQUENCY_LIMITED", "message": "slow down"}, status=429)
    for call in (wechat.query, wechat.close):
        with pytest.raises(ProviderUnavailable, match="FREQUENCY_LIMITED"):
            call(out_trade_no=NUMBER)
    company.answer = signed({"code": "RATELIMIT_EXCEEDED", "message": "slow down"}, status=403)
    with pytest.raises(ProviderUnavailable):
        wechat.query_refund(out_trade_no=NUMBER, out_refund_no=NUMBER)
    company.answer = signed({"code": "USER_PAYING", "message": "wait"}, status=202)
    with pytest.raises(OutcomeUnknown, match="USER_PAYING"):
        wechat.close(out_trade_no=NUMBER)
    company.answer = signed({"code": "SIGN_ERROR", "message": "not yours"}, status=401)
    with pytest.raises(ProviderUnavailable, match="SIGN_ERROR"):
        wechat.close(out_trade_no=NUMBER)
    company.answer = signed({"code": "NO_AUTH", "message": "no"}, status=403)
    with pytest.raises(OutcomeUnknown, match="NO_AUTH"):  # nor may we ask what became of it
        wechat.close(out_trade_no=NUMBER)
    numbers = {"out_trade_no": NUMBER, "out_refund_no": NUMBER}
    company.answer = signed({"status": "PROCESSING", **numbers})
    assert wechat.query_refund(out_trade_no=NUMBER, out_refund_no=NUMBER).status is RefundStatus.PROCESSING
    for told, becomes in (("ABNORMAL", RefundStatus.STUCK), ("CLOSED", RefundStatus.FAILED)):
        company.answer = signed({"status": told, **numbers})
        assert wechat.query_refund(out_trade_no=NUMBER, out_refund_no=NUMBER).status is becomes


@pytest.mark.parametrize("code", ["INVALID_REQUEST", "ORDERPAID", "SOMETHING_NEW"])
@pytest.mark.parametrize(
    ("state", "expected"),
    [("SUCCESS", TradeStatus.PAID), ("CLOSED", TradeStatus.CLOSED), ("NOTPAY", None), (None, None)],
)
def test_wechat_is_asked_what_became_of_a_trade_that_it_would_not_close(
    wechat: WeChatPay, company: Company, code: str, state: str | None, expected: TradeStatus | None
) -> None:
    """Which code it refuses with is not to be relied on, and a paid order may have no other witness."""
    trade = {
        **dict.fromkeys(("mchid", "transaction_id"), "x"),
        "out_trade_no": NUMBER,
        "trade_state": state,
        "amount": {"total": 1990, "currency": "CNY"},
    }
    refused = signed({"code": code, "message": "no"}, status=400)
    asked = signed(trade) if state else signed({"code": "ORDER_NOT_EXIST", "message": "no"}, status=404)

    def answer(body: bytes) -> Answer:
        return (refused if company.asked[-1][0].endswith("/close") else asked)(body)

    company.answer = answer
    if expected is None:
        with pytest.raises(ProviderRejected, match=code):
            wechat.close(out_trade_no=NUMBER)
    else:
        closed = wechat.close(out_trade_no=NUMBER)
        assert (closed.status, len(closed.facts)) == (expected, 1)
    assert len(company.asked) == 2


def test_wechat_names_its_public_key_so_that_the_platform_signs_with_it(
    wechat: WeChatPay, company: Company
) -> None:
    company.answer = unpaid(company)
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
PAID_TRADE = {
    "code": "10000",
    "out_trade_no": NUMBER,
    "trade_no": "20",
    "total_amount": "19.90",
    "trade_status": "TRADE_SUCCESS",
}


@pytest.mark.parametrize(
    "answer",
    [
        lambda: lambda _: (200, {}, b"<html>"),
        lambda: lambda _: (200, {}, b"[]"),
        lambda: lambda _: (200, {}, b'{"alipay_trade_query_response":{"code":"10000"}}'),
        lambda: alipay_says(QUERY, PAID_TRADE, forge=True),
        lambda: alipay_says(QUERY, {name: value for name, value in PAID_TRADE.items() if name != "total_amount"}),
        lambda: alipay_says(QUERY, {"code": "10000", "out_trade_no": NUMBER}),
        lambda: alipay_says(QUERY, {"code": "20000", "msg": "unavailable"}),
        lambda: alipay_says(QUERY, {"code": "10003", "msg": "waiting"}),
        lambda: alipay_says(QUERY, {"code": 10000, **{k: v for k, v in PAID_TRADE.items() if k != "code"}}),
        lambda: alipay_says(QUERY, {"sub_code": "ACQ.TRADE_NOT_EXIST"}),
        lambda: alipay_says(QUERY, {"code": ["40004"], "sub_code": "ACQ.TRADE_NOT_EXIST"}),
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
    with pytest.raises(ProviderRejected, match=r"isv\.missing-method"):
        alipay.query(out_trade_no=NUMBER)
    with pytest.raises(OutcomeUnknown, match=r"isv\.missing-method"):  # nor may we ask what became of it
        alipay.close(out_trade_no=NUMBER)
    with pytest.raises(ProviderRejected):
        alipay.query_refund(out_trade_no=NUMBER, out_refund_no=NUMBER)
    for turned_away in (
        {"code": "40005", "sub_code": "isv.app-call-limited"},
        {"code": "40006", "sub_code": "isv.insufficient-isv-permissions"},
        {"code": "40002", "sub_code": "isv.invalid-signature"},
    ):
        company.answer = alipay_says("error", turned_away)
        with pytest.raises(ProviderUnavailable, match=turned_away["code"]):
            alipay.close(out_trade_no=NUMBER)
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
