"""docs/contract.md, 2, cancel and payment of an order, with the provider scripted."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from idempotency.models import LedgerEntry
from payments.attempts import asking
from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.models import Attempt, Payment
from payments.reconciliation import reconcile
from shop import tasks
from shop.models import Order, Product
from shop.orders import lifecycle
from tests.integration.shop.provider import Opened
from tests.integration.shop.settling import number_of, settle

SILENCE = OutcomeUnknown("timed out")


class Checkout:
    """An order of two mugs, its shopper, and the providers that the test scripts."""

    def __init__(self, caller: Any, channels: dict[str, Any]) -> None:
        self.caller, self.channels = caller, channels
        self.wechat, self.alipay = channels["wechat"], channels["alipay"]
        self.order_id: str = caller.order(quantity=2, key="place").json()["id"]

    def pay(self, channel: Any = "wechat", *, key: str = "pay") -> Any:
        return self.caller.post(f"orders/{self.order_id}/payment", {"channel": channel}, key=key)

    def cancel(self, *, key: str = "cancel") -> Any:
        return self.caller.post(f"orders/{self.order_id}/cancel", key=key)

    def order(self) -> Any:
        return self.caller.get(f"orders/{self.order_id}")

    def number(self, channel: str = "wechat") -> str:
        return number_of(self.order_id, channel)

    def arrives(self, channel: str = "wechat") -> None:
        """Pay at the provider, whose notification arrives."""
        settle(self.channels[channel].pay(self.number(channel)))

    def attempts(self) -> Any:
        return self.caller.get(f"payments/{Payment.objects.get().id.hex}").json()["attempts"]


@pytest.fixture
def checkout(caller: Any, mug: Product, channels: dict[str, Any]) -> Checkout:
    return Checkout(caller, channels)


def stock() -> int:
    return Product.objects.get(sku="mug").stock


class TestPayment:
    def test_opens_the_one_payment(self, checkout: Checkout) -> None:
        response = checkout.pay()

        assert response.status_code == 201
        payment = response.json()
        assert response["Location"] == f"/api/v1/payments/{payment['id']}"
        assert response["ETag"] == f'"{payment["version"]}"'
        assert payment["order"] == checkout.order_id
        assert payment["status"] == "pending"
        assert payment["amount"] == {"amount_minor": 3980, "currency": "CNY"}
        [attempt] = payment["attempts"]
        assert attempt["channel"] == "wechat"
        assert attempt["next_action"] == {"type": "qr_code", "url": "weixin://wxpay/bizpayurl?pr=p4lpSuKzz"}
        assert list(checkout.wechat.trades) == [attempt["out_trade_no"]]

        order = checkout.order()
        assert order.json()["payment"] == payment["id"]
        assert order["ETag"] == '"2"', "the order shows its payment now, so its ETag moved"

    def test_another_key_goes_on_and_another_channel_is_a_second_attempt(self, checkout: Checkout) -> None:
        first, replay, again = checkout.pay(), checkout.pay(), checkout.pay(key="again")
        assert (replay.status_code, replay.content, replay["Idempotent-Replayed"]) == (201, first.content, "true")
        assert (again.status_code, again.json()) == (201, first.json())
        assert [method for method, _ in checkout.wechat.calls] == ["create"]

        second = checkout.pay("alipay", key="pay2").json()
        assert second["id"] == first.json()["id"]
        assert [attempt["channel"] for attempt in second["attempts"]] == ["wechat", "alipay"]
        assert second["version"] == first.json()["version"] + 1, "it looks otherwise, so its ETag moved"
        assert second["attempts"][1]["next_action"]["type"] == "redirect"
        assert Payment.objects.count() == 1

        checkout.arrives()
        reconcile.run_as_leader()
        assert [method for method, _ in checkout.alipay.calls] == ["create", "close"], "open no longer than needed"
        assert Attempt.objects.get(channel="alipay").status == "closed"
        assert Payment.objects.get().status == "succeeded"
        assert checkout.order().json()["status"] == "paid"
        late = checkout.pay("alipay", key="pay3")
        assert (late.status_code, late.json()["code"]) == (409, "order_paid")

    def test_a_retry_after_202_opens_no_second_attempt(self, checkout: Checkout) -> None:
        """The first one was charged in another amount, so the order is still to be paid."""
        checkout.wechat.fails(SILENCE, "create", "query")
        assert checkout.pay().status_code == 202
        checkout.wechat.works()
        checkout.wechat.trades[checkout.number()] = Opened(4080, "CNY")
        checkout.arrives()
        asked = len(checkout.wechat.calls)

        for _ in range(2):  # the first of them ends the entry, the second only shows what there is
            retry = checkout.pay()
            assert (retry.status_code, len(retry.json()["attempts"])) == (202, 1)
        assert Attempt.objects.count() == 1
        assert len(checkout.wechat.calls) == asked
        assert checkout.pay(key="pay-anew").status_code == 201
        assert Attempt.objects.count() == 2

    def test_nobody_needs_to_retry_what_has_become_known(self, checkout: Checkout) -> None:
        def entries() -> list[str]:
            return [entry.state for entry in LedgerEntry.objects.filter(key__in=["pay", "cancel"])]

        def ask() -> list[tuple[int, str]]:
            answers = checkout.pay(), checkout.cancel()
            return [(answer.status_code, answer.json()["status"]) for answer in answers]

        checkout.wechat.fails(SILENCE, "create", "query", "close")
        assert ask() == [(202, "uncertain"), (202, "pending")]
        assert (tasks.complete_ledger(timestamp=0), entries()) == ({}, ["uncertain", "uncertain"])

        checkout.wechat.works()
        Order.objects.update(closing_at=Now() - timedelta(minutes=2))
        assert lifecycle.expire(order_id=Order.objects.get().id) == "closed"
        assert tasks.complete_ledger(timestamp=0) == {"settled": 2}
        assert entries() == ["finished", "finished"]
        assert ask() == [(202, "closed"), (202, "closed")]

    def test_a_key_that_heard_a_5xx_is_free_once_all_that_it_did_is_known(self, checkout: Checkout) -> None:
        checkout.wechat.fails(ProviderRejected("NO_AUTH", "not allowed"), "create")
        assert checkout.pay().status_code == 502
        assert LedgerEntry.objects.get(key="pay").subject == f"order:{checkout.order_id}", "an operator finds it"
        assert tasks.complete_ledger(timestamp=0) == {}, "its caller's own retries come first"

        LedgerEntry.objects.filter(key="pay").update(lease_until=Now() - timedelta(minutes=3))
        checkout.alipay.fails(SILENCE, "create", "query", "close")
        checkout.pay("alipay", key="other")
        assert tasks.complete_ledger(timestamp=0) == {}, "something of the order is in doubt"
        Attempt.objects.filter(channel="alipay").update(status="failed")
        assert tasks.complete_ledger(timestamp=0) == {"settled": 2}
        assert not LedgerEntry.objects.filter(key="pay").exists()
        checkout.wechat.works()
        assert checkout.pay().status_code == 201

    def test_a_key_that_heard_202_is_never_free(self, checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(asking, "AGAIN", timedelta(0))
        checkout.wechat.fails(SILENCE, "create", "query", "close")
        assert checkout.pay().status_code == 202
        checkout.wechat.failure = ProviderUnavailable("refused")
        assert checkout.pay().status_code == 202  # nobody says what became of it
        checkout.wechat.failing = frozenset({"create"})
        assert checkout.pay().status_code == 503
        LedgerEntry.objects.filter(key="pay").update(lease_until=Now() - timedelta(minutes=3))
        Attempt.objects.update(status="failed")
        assert tasks.complete_ledger(timestamp=0) == {"settled": 1}
        assert LedgerEntry.objects.get(key="pay").state == "finished"
        assert checkout.pay().status_code == 202

    def test_another_channel_is_not_uncertain_because_the_first_is(self, checkout: Checkout) -> None:
        checkout.wechat.fails(SILENCE, "create", "query", "close")
        assert checkout.pay().status_code == 202
        by_alipay = checkout.pay("alipay", key="pay2")

        assert (by_alipay.status_code, by_alipay.json()["status"]) == (201, "uncertain")
        assert by_alipay.json()["attempts"][1]["next_action"]["type"] == "redirect"

    @pytest.mark.parametrize("over", ["paid by another channel", "cancelled", "out of time"])
    def test_the_timer_opens_nothing_that_nobody_may_pay_any_more(self, checkout: Checkout, over: str) -> None:
        checkout.wechat.fails(SILENCE, "create", "query", "close")
        assert checkout.pay().status_code == 202
        if over == "cancelled":
            assert checkout.cancel().status_code == 202
        elif over == "out of time":
            Attempt.objects.update(expires_at="2020-01-01T00:00:00Z")
        else:
            checkout.pay("alipay", key="pay2")
            checkout.arrives("alipay")
        checkout.wechat.works()
        Attempt.objects.filter(channel="wechat").update(next_query_at=Now())
        reconcile.run_as_leader()

        assert [method for method, _ in checkout.wechat.calls].count("create") == 1, (
            "and that one was never answered"
        )
        assert Attempt.objects.get(channel="wechat").status == "closed"

    def test_a_closed_or_expired_order_is_409(self, checkout: Checkout) -> None:
        Order.objects.update(expires_at="2020-01-01T00:00:00Z")
        late = checkout.pay()
        assert checkout.cancel().status_code == 200
        closed = checkout.pay(key="pay2")

        for response in (late, closed):
            assert (response.status_code, response.json()["code"]) == (409, "order_closed")
        assert not checkout.wechat.calls

    def test_a_channel_that_cannot_take_the_order_is_409_and_an_unknown_one_400(self, checkout: Checkout) -> None:
        checkout.alipay.currencies = frozenset({"JPY"})
        for channel in ("stripe", "alipay"):
            refused = checkout.pay(channel, key=channel)
            assert (refused.status_code, refused.json()["code"]) == (409, "channel_unavailable")
        assert refused.json()["detail"] == "This payment channel takes no CNY: choose another."
        path = f"orders/{checkout.order_id}/payment"
        for body in ({}, {"channel": "cash"}, {"channel": None}):
            assert checkout.caller.post(path, body, key="pay").status_code == 400
        assert not Attempt.objects.exists()
        assert checkout.pay().status_code == 201

    def test_a_failing_provider_leaves_the_key_to_try_again(self, checkout: Checkout) -> None:
        for failure, status, code in (
            (ProviderRejected("PARAM_ERROR", "no"), 502, "provider_refused"),
            (ProviderUnavailable("refused"), 503, "provider_unavailable"),
        ):
            checkout.wechat.fails(failure, "create")
            response = checkout.pay()
            assert (response.status_code, response.json()["code"]) == (status, code)
        checkout.wechat.works()
        assert checkout.pay().status_code == 201
        assert len(checkout.wechat.trades) == 1


FORM = "application/x-www-form-urlencoded"
BODIES_OF_NO_USE = [
    ("text/plain", b"zzz", 415),
    ("application/json", b"{", 400),
    (FORM, b"a=1", 415),
    (f"{FORM}; charset=utf-16", b"", 400),
    ("multipart/form-data; x=1", b"--x", 415),  # without boundary
]


class TestCancel:
    def test_closes_at_the_provider_and_puts_the_units_back(self, checkout: Checkout) -> None:
        checkout.pay()
        assert stock() == 98
        first, replay, again = checkout.cancel(), checkout.cancel(), checkout.cancel(key="other")

        assert first.status_code == 200
        assert first.json()["status"] == "closed"
        assert first["ETag"] == f'"{first.json()["version"]}"'
        assert [method for method, _ in checkout.wechat.calls] == ["create", "close"]
        assert (replay.content, replay["Idempotent-Replayed"]) == (first.content, "true")
        assert (again.status_code, again.json()) == (200, first.json())
        assert stock() == 100

    def test_a_silent_provider_is_202_and_ends_later(self, checkout: Checkout) -> None:
        checkout.pay()
        checkout.wechat.fails(SILENCE, "close", "query")
        first = checkout.cancel()

        assert (first.status_code, first.json()["status"]) == (202, "pending")
        assert stock() == 98
        blocked = checkout.pay("alipay", key="pay2")
        assert (blocked.status_code, blocked.json()["code"]) == (409, "order_closed")

        checkout.wechat.works()
        second = checkout.cancel()
        assert (second.status_code, second.json()["status"]) == (202, "closed")
        assert stock() == 100

    def test_a_channel_that_was_switched_off_meanwhile_is_waited_for(self, checkout: Checkout) -> None:
        """And does not keep the others open."""
        for channel in ("alipay", "wechat"):
            checkout.pay(channel, key=channel)
        alipay = checkout.channels.pop("alipay")
        cancelled = checkout.cancel()
        assert (cancelled.status_code, cancelled.json()["status"]) == (202, "pending")
        assert [attempt["status"] for attempt in checkout.attempts()] == ["pending", "closed"]

        checkout.channels["alipay"] = alipay
        assert checkout.cancel().json()["status"] == "closed"

    def test_a_body_that_cannot_be_read_is_refused_before_the_key(self, checkout: Checkout) -> None:
        def cancel(kind: str, body: bytes, *, key: str = "cancel") -> Any:
            path, headers = f"/api/v1/orders/{checkout.order_id}/cancel", {"Idempotency-Key": key}
            return checkout.caller.http.generic("POST", path, body, kind, headers=headers)

        for kind, body, status in BODIES_OF_NO_USE:
            refused = cancel(kind, body)
            assert (refused.status_code, refused["Content-Type"]) == (status, "application/problem+json"), kind
        assert Order.objects.get().status == "pending"
        assert cancel(FORM, b"").status_code == 200, "what curl says of an empty body is a form"
        assert cancel("application/json", b"{}", key="again").status_code == 200
