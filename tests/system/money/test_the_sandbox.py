"""The control calls that this package turns: what they take, what they refuse, what they answer."""

from typing import Any

from tests.system.money.till import PRICE_MINOR, Till


def test_deliveries_are_counted_by_their_state(till: Till) -> None:
    before = till.deliveries()
    assert list(before) == ["due", "done", "lost", "given up"]
    till.sandbox.faults(duplicates=3)
    till.sandbox.pay(till.open(till.order(), "wechat").out_trade_no)
    till.sandbox.faults(drop_rate=1)
    till.sandbox.pay(till.open(till.order(), "wechat").out_trade_no)
    till.all_notified()
    after = till.deliveries()
    assert {name: after[name] - before[name] for name in after} == {"due": 0, "done": 3, "lost": 3, "given up": 0}


def test_a_release_is_for_those_that_wait(till: Till) -> None:
    assert till.sandbox.http.post("/_control/release").json() == {"released": 0}
    assert till.sandbox.http.get("/_control/release").status_code == 405


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
