"""The control calls that this package turns: what they take, what they refuse, what they answer."""

from typing import Any

from tests.system.money.till import PRICE_MINOR, Till


def test_a_refund_by_hand_stays_within_what_was_charged(till: Till) -> None:
    number = till.bought("wechat").out_trade_no

    def refund(**body: Any) -> int:
        status: int = till.sandbox.http.post("/_control/refund", json=body).status_code
        return status

    assert refund(out_trade_no="nobody-s", amount_minor=1) == 404
    assert refund(out_trade_no=number, amount_minor=PRICE_MINOR + 1) == 409
    assert [refund(out_trade_no=number, amount_minor=wrong) for wrong in (0, -1, "1", None)] == [400] * 4
    assert refund(out_trade_no=number) == 400
    assert till.charges()[number]["refunded_minor"] == 0
    till.witness()
