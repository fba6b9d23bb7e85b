"""Alipay against the sandbox: one code a number, and the certificates of a request."""

from typing import Any

import httpx
import pytest

from idempotency.ids import new_id
from payments.errors import ProviderRejected
from payments.providers import registry
from payments.providers.actions import NextActionType, PayMethod
from payments.providers.base import TradeStatus
from tests.integration.payments.providers.conftest import asked, towards
from tests.sandbox import Sandbox


def test_one_number_is_one_code_and_one_amount(sandbox: Sandbox) -> None:
    alipay = towards(sandbox)["alipay"]

    def code(number: str, **more: Any) -> str:
        """A QR code that nobody has scanned yet."""
        action = asked(alipay, number, method=PayMethod.PRECREATE, return_url="", **more)
        assert action.type is NextActionType.QR_CODE
        return action.url

    def scan(url: str) -> httpx.Response:
        return httpx.get(url, follow_redirects=True, trust_env=False)

    unpaid, paid = new_id().hex, new_id().hex
    url = code(unpaid)
    for arrive in (lambda: None, lambda: scan(url)):
        arrive()
        assert code(unpaid) == url
        with pytest.raises(ProviderRejected, match=r"ACQ\.CONTEXT_INCONSISTENT"):
            code(unpaid, amount_minor=1)
    closed = alipay.close(out_trade_no=unpaid)
    assert (closed.status, closed.may_yet_begin) == (TradeStatus.CLOSED, False)
    with pytest.raises(ProviderRejected, match=r"ACQ\.TRADE_HAS_CLOSE"):
        code(unpaid)
    assert scan(url.rsplit("/", 1)[0] + "/nobody").status_code == 404
    assert scan(code(paid)).url.path == f"/pay/{paid}"
    httpx.post(f"{sandbox.url}/pay/{paid}", trust_env=False)
    assert alipay.query(out_trade_no=paid).status is TradeStatus.PAID
    with pytest.raises(ProviderRejected, match=r"ACQ\.TRADE_HAS_SUCCESS"):
        code(paid)


@pytest.mark.parametrize("name", ["app_cert_sn", "alipay_root_cert_sn"])
def test_the_sandbox_checks_both_certificates_of_a_request(sandbox: Sandbox, name: str) -> None:
    files = sandbox.keys.alipay_certificates.settings
    fields = {field.removeprefix("ALIPAY_"): file for field, file in files.items()} | {"PUBLIC_KEY_FILE": ""}
    alipay: Any = registry.build({"alipay": sandbox.channels()["alipay"] | fields})["alipay"]
    assert alipay.query(out_trade_no=new_id().hex).status is TradeStatus.NOT_FOUND
    genuine = dict(alipay._trust.parameters)
    for changed in (genuine | {name: "0" * 32}, {other: sn for other, sn in genuine.items() if other != name}):
        alipay._trust.parameters = changed
        with pytest.raises(ProviderRejected, match=rf"isv\.invalid-{name.replace('_', '-')}"):
            alipay.query(out_trade_no=new_id().hex)
