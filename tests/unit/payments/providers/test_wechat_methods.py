"""WeChat's ways to pay: what is sent, and what the shopper's page gets."""

import json

import pytest

from payments.providers.actions import NextActionType, Payer, PayMethod
from payments.providers.wechat.client import WeChatPay
from payments.sandbox import keys
from tests.unit.payments.providers.conftest import Company, create, signed

SHOPPER = Payer(openid="oUpF8uMuAJO", client_ip="203.0.113.7")


def test_jsapi_hands_over_signed_arguments(wechat: WeChatPay, company: Company, platform: keys.Keys) -> None:
    company.answer = signed({"prepay_id": "wx201410272009395522657a690389285100"})
    action = create(wechat, method=PayMethod.JSAPI, payer=SHOPPER)
    assert company.asked[0][0] == "/v3/pay/transactions/jsapi"
    assert json.loads(company.bodies[0])["payer"] == {"openid": SHOPPER.openid}
    assert (action.type, action.url, action.reference) == (NextActionType.JSAPI, "", "")
    assert set(action.params) == {"appId", "timeStamp", "nonceStr", "package", "signType", "paySign"}
    params = action.params
    assert params["appId"] == platform.settings["WECHAT_APP_ID"]
    assert params["package"] == "prepay_id=wx201410272009395522657a690389285100"
    assert (params["signType"], params["timeStamp"].isdigit(), len(params["nonceStr"])) == ("RSA", True, 32)
    again = create(wechat, method=PayMethod.JSAPI, payer=SHOPPER).params
    assert (again["package"], again["nonceStr"] == params["nonceStr"]) == (params["package"], False)


@pytest.mark.parametrize(
    ("method", "payer", "why"),
    [
        (PayMethod.JSAPI, Payer(), "openid"),
        (PayMethod.H5, Payer(), "client_ip"),
        (PayMethod.H5, Payer(client_ip="localhost"), "localhost"),
        (PayMethod.PAGE, SHOPPER, "is not one of native, h5, jsapi"),
    ],
)
def test_what_cannot_be_opened_is_not_sent(
    wechat: WeChatPay, company: Company, method: PayMethod, payer: Payer, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        create(wechat, method=method, payer=payer)
    assert company.asked == []
