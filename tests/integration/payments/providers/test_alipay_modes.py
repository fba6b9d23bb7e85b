"""Alipay in key mode and in certificate mode against the sandbox: QR codes, bills, early notices of refunds."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest

from idempotency.ids import new_id
from payments.errors import OutcomeUnknown, ProviderRejected, SignatureInvalid
from payments.providers import registry
from payments.providers.alipay.client import Alipay
from payments.providers.base import FactKind, NextActionType, PayMethod, RefundStatus, TradeStatus
from payments.providers.documents import CHINA
from tests.integration.payments.providers.conftest import Listener, asked, opened, refund
from tests.sandbox import Sandbox


def channel(sandbox: Sandbox, *, certificates: bool, **changed: str) -> dict[str, dict[str, str]]:
    settings = sandbox.channels()["alipay"]
    if certificates:
        files = sandbox.keys.alipay_certificates.settings
        settings |= {name.removeprefix("ALIPAY_"): value for name, value in files.items()} | {
            "PUBLIC_KEY_FILE": ""
        }
    return {"alipay": settings | changed}


@pytest.fixture(params=["key mode", "certificate mode"])
def alipay(request: pytest.FixtureRequest, sandbox: Sandbox) -> Alipay:
    built: Any = registry.build(channel(sandbox, certificates=request.param == "certificate mode"))["alipay"]
    return built


def code(alipay: Alipay, number: str, **more: Any) -> str:
    """A QR code that nobody has scanned yet."""
    action = asked(alipay, number, **{"method": PayMethod.PRECREATE, "return_url": "", **more})
    assert action.type is NextActionType.QR_CODE
    return action.url


def scan(url: str) -> httpx.Response:
    return httpx.get(url, follow_redirects=True, trust_env=False)


def test_a_code_is_scanned_and_paid(alipay: Alipay, sandbox: Sandbox, number: str) -> None:
    url = code(alipay, number)
    assert url.startswith(sandbox.url)
    assert alipay.query(out_trade_no=number).status is TradeStatus.NOT_FOUND
    page = scan(url)
    assert (page.url.path, page.status_code) == (f"/pay/{number}", 200)
    assert "19.90" in page.text
    assert alipay.query(out_trade_no=number).status is TradeStatus.PENDING
    assert code(alipay, number) == url
    httpx.post(f"{sandbox.url}/pay/{number}", trust_env=False)
    trade = alipay.query(out_trade_no=number)
    assert (trade.status, trade.facts[0].amount_minor) == (TradeStatus.PAID, 1990)
    with pytest.raises(ProviderRejected, match=r"ACQ\.TRADE_HAS_SUCCESS"):
        code(alipay, number)


def test_one_number_is_one_code_and_one_amount(alipay: Alipay, number: str) -> None:
    url = code(alipay, number)
    with pytest.raises(ProviderRejected, match=r"ACQ\.CONTEXT_INCONSISTENT"):
        code(alipay, number, amount_minor=1)
    scan(url)
    with pytest.raises(ProviderRejected, match=r"ACQ\.CONTEXT_INCONSISTENT"):
        code(alipay, number, amount_minor=1)
    closed = alipay.close(out_trade_no=number)
    assert (closed.status, closed.may_yet_begin) == (TradeStatus.CLOSED, False)
    with pytest.raises(ProviderRejected, match=r"ACQ\.TRADE_HAS_CLOSE"):
        code(alipay, number)
    assert scan(url.rsplit("/", 1)[0] + "/nobody").status_code == 404


def test_a_code_that_nobody_scanned_can_be_paid_after_a_close(
    alipay: Alipay, sandbox: Sandbox, number: str
) -> None:
    url = code(alipay, number)
    closed = alipay.close(out_trade_no=number)
    assert (closed.status, closed.may_yet_begin) == (TradeStatus.CLOSED, True)
    scan(url)
    assert sandbox.pay(number)["charged_minor"] == 1990
    assert alipay.query(out_trade_no=number).status is TradeStatus.PAID


def test_a_code_that_is_scanned_too_late(alipay: Alipay, sandbox: Sandbox, number: str) -> None:
    scan(code(alipay, number, expires_at=datetime.now(UTC) - timedelta(seconds=5)))
    assert sandbox.http.post("/_control/pay", json={"out_trade_no": number}).status_code == 409
    assert alipay.query(out_trade_no=number).status is TradeStatus.CLOSED


def test_modes_do_not_believe_each_other_s_notifications(sandbox: Sandbox, listener: Listener) -> None:
    built: list[Any] = [registry.build(channel(sandbox, certificates=mode))["alipay"] for mode in (False, True)]
    for own, other in (built, built[::-1]):
        number = new_id().hex
        opened(own, number, notify_url=listener.url)
        sandbox.pay(number)
        _, body = listener.next()
        assert own.read_notification(headers={}, body=body, now=datetime.now(UTC)).facts
        with pytest.raises(SignatureInvalid):
            other.read_notification(headers={}, body=body, now=datetime.now(UTC))


@pytest.mark.parametrize("name", ["app_cert_sn", "alipay_root_cert_sn"])
def test_the_sandbox_checks_both_certificates_of_a_request(sandbox: Sandbox, name: str) -> None:
    alipay: Any = registry.build(channel(sandbox, certificates=True))["alipay"]
    genuine = dict(alipay._trust.parameters)
    for changed in (genuine | {name: "0" * 32}, {other: sn for other, sn in genuine.items() if other != name}):
        alipay._trust.parameters = changed
        with pytest.raises(ProviderRejected, match=rf"isv\.invalid-{name.replace('_', '-')}"):
            alipay.query(out_trade_no=new_id().hex)


def days_of(*moments: datetime | None) -> list[date]:
    return sorted({moment.astimezone(CHINA).date() for moment in moments if moment is not None})


def test_the_bill_tells_what_moved(alipay: Alipay, sandbox: Sandbox, number: str) -> None:
    began = datetime.now(UTC)
    unpaid, refunded = new_id().hex, new_id().hex
    code(alipay, unpaid)
    opened(alipay, number, description='杯子, "白" & 😀\n#1')
    sandbox.faults(wrong_amount=True)  # what was charged is billed, not what was asked for
    sandbox.pay(number)
    refund(alipay, number, refunded, 990, paid_minor=2090)
    (paid,) = alipay.query(out_trade_no=number).facts
    days = days_of(began, datetime.now(UTC))  # two, if the test runs at midnight
    lines = [line for day in days for line in alipay.bill(day=day)]
    ours = [line for line in lines if line.out_trade_no == number]
    assert [(line.kind, line.amount_minor, line.out_refund_no) for line in ours] == [
        (FactKind.PAID, 2090, ""),
        (FactKind.REFUNDED, 990, refunded),
    ]
    assert (ours[0].provider_txn_id, ours[0].occurred_at) == (paid.provider_txn_id, paid.occurred_at)
    assert ours[1].provider_txn_id == refunded
    assert all(line.out_trade_no != unpaid for line in lines)
    assert any(line.kind is FactKind.PAID for line in lines)


def test_a_bill_s_address_is_only_for_who_was_given_it(alipay: Alipay, sandbox: Sandbox) -> None:
    assert sandbox.http.get("/alipay/bill", params={"fileId": "forged"}).status_code == 403
    with pytest.raises(ProviderRejected, match=r"ACQ\.INVALID_PARAMETER"):
        alipay._call(
            "alipay.data.dataservice.bill.downloadurl.query",
            {"bill_type": "signcustomer", "bill_date": "2026-11-20"},
        )


def test_the_notice_of_a_refund_before_its_answer(
    alipay: Alipay, sandbox: Sandbox, listener: Listener, number: str
) -> None:
    """The refund's answer is lost, its notices come: a part tells nothing new, and all of it no single amount."""
    opened(alipay, number, notify_url=listener.url)
    sandbox.pay(number)
    _, body = listener.next()
    paid = alipay.read_notification(headers={}, body=body, now=datetime.now(UTC)).facts
    sandbox.faults(timeout_after_success=2)
    for amount in (990, 1000):  # in part, then the rest: TRADE_SUCCESS again, then TRADE_CLOSED
        refunded = new_id().hex
        with pytest.raises(OutcomeUnknown):
            refund(alipay, number, refunded, amount)
        _, body = listener.next()
        assert dict(parse_qsl(body.decode()))["refund_fee"]
        early = alipay.read_notification(headers={}, body=body, now=datetime.now(UTC))
        assert early.facts[:1] == paid
        assert [fact.is_whole for fact in early.facts[1:]] == [True] * (amount == 1000)
        told = alipay.query_refund(out_trade_no=number, out_refund_no=refunded)
        assert (told.status, told.facts[0].amount_minor) == (RefundStatus.SUCCEEDED, amount)
    assert sandbox.charges()[number]["refunded_minor"] == 1990


def test_a_folder_of_keys_from_before_certificates_gets_them(sandbox: Sandbox, tmp_path: Path) -> None:
    """`make run` keeps its data over updates."""
    from payments.sandbox import keys

    before = keys.ensure(tmp_path)
    for file in tmp_path.glob("alipay_*cert*"):
        file.unlink()
    found = keys.load(tmp_path)
    assert dict(found.settings) == before
    settings = {
        name.removeprefix("ALIPAY_"): value for name, value in before.items() if name.startswith("ALIPAY_")
    }
    files = {name.removeprefix("ALIPAY_"): value for name, value in found.alipay_certificates.settings.items()}
    built: Any = registry.build({"alipay": settings | files | {"GATEWAY_URL": sandbox.url}})["alipay"]
    assert built._trust.parameters["app_cert_sn"] == found.alipay_certificates.app_sn
    assert replace(built.config).certificates is not None
