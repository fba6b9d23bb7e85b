"""docs/contract.md, 2, cancel and payment of an order, with the provider scripted."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now

from idempotency.models import LedgerEntry
from payments.attempts import asking
from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.models import Attempt, Payment
from payments.providers.base import FactKind
from payments.reconciliation import reconcile
from shop import tasks
from shop.models import Order, Product
from shop.orders import lifecycle
from tests.integration.shop.provider import Opened
from tests.integration.shop.settling import number_of, settle


@pytest.fixture
def order_id(caller: Any, mug: Product) -> str:
    order_id: str = caller.order(quantity=2, key="place").json()["id"]
    return order_id


def stock() -> int:
    return Product.objects.get(sku="mug").stock


def silent(provider: Any) -> None:
    """It hears nothing, and says nothing."""
    provider.failing, provider.failure = frozenset({"create", "query", "close"}), OutcomeUnknown("timed out")


def shown_attempts(caller: Any) -> list[dict[str, Any]]:
    attempts: list[dict[str, Any]] = caller.get(f"payments/{Payment.objects.get().id.hex}").json()["attempts"]
    return attempts


class TestPayment:
    def test_opens_the_one_payment(self, caller: Any, order_id: str, channels: Any) -> None:
        response = caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")

        assert response.status_code == 201
        payment = response.json()
        assert response["Location"] == f"/api/v1/payments/{payment['id']}"
        assert response["ETag"] == f'"{payment["version"]}"'
        assert payment["order"] == order_id
        assert payment["status"] == "pending"
        assert payment["amount"] == {"amount_minor": 3980, "currency": "CNY"}
        [attempt] = payment["attempts"]
        assert attempt["channel"] == "wechat"
        assert attempt["next_action"] == {"type": "qr_code", "url": "weixin://wxpay/bizpayurl?pr=p4lpSuKzz"}
        assert list(channels["wechat"].trades) == [attempt["out_trade_no"]]

        order = caller.get(f"orders/{order_id}")
        assert order.json()["payment"] == payment["id"]
        assert order["ETag"] == '"2"', "the order shows its payment now, so its ETag moved"

    def test_the_same_key_opens_nothing_more(self, caller: Any, order_id: str, channels: Any) -> None:
        first = caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
        second = caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")

        assert (second.status_code, second.content) == (201, first.content)
        assert second["Idempotent-Replayed"] == "true"
        assert [method for method, _ in channels["wechat"].calls] == ["create"]

    def test_another_key_goes_on_with_the_open_attempt(self, caller: Any, order_id: str, channels: Any) -> None:
        first = caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
        second = caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="again")

        assert second.status_code == 201
        assert second.json() == first.json()
        assert len(channels["wechat"].trades) == 1

    def test_another_channel_is_a_second_attempt(self, caller: Any, order_id: str, channels: Any) -> None:
        first = caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay").json()
        second = caller.post(f"orders/{order_id}/payment", {"channel": "alipay"}, key="pay2").json()

        assert second["id"] == first["id"]
        assert [attempt["channel"] for attempt in second["attempts"]] == ["wechat", "alipay"]
        assert second["version"] == first["version"] + 1, "it looks otherwise, so its ETag moved"
        assert second["attempts"][1]["next_action"]["type"] == "redirect"
        assert Payment.objects.count() == 1

    def test_a_silent_provider_is_202_and_the_same_key_tells_how_it_ends(
        self, caller: Any, order_id: str, channels: Any
    ) -> None:
        wechat = channels["wechat"]
        wechat.failing, wechat.failure = frozenset({"create", "query"}), OutcomeUnknown("timed out")
        first = caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")

        assert first.status_code == 202
        assert first.json()["status"] == "uncertain"

        wechat.failing = frozenset()
        second = caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")

        assert second.status_code == 202
        assert second.json()["status"] == "pending"
        assert second["Idempotent-Replayed"] == "true"
        assert second.json()["attempts"][0]["out_trade_no"] == first.json()["attempts"][0]["out_trade_no"]
        assert Attempt.objects.count() == 1

    def test_a_retry_after_202_hears_of_the_payment_and_no_refusal(
        self, caller: Any, order_id: str, channels: Any
    ) -> None:
        wechat = channels["wechat"]
        wechat.failing, wechat.failure = frozenset({"create"}), OutcomeUnknown("timed out")
        caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
        wechat.failing = frozenset()
        number = number_of(order_id, "wechat")
        wechat.create(
            out_trade_no=number,
            amount_minor=3980,
            currency="CNY",
            description="",
            notify_url="",
            return_url="",
            expires_at=None,
        )
        settle(wechat.pay(number))

        retry = caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")

        assert retry.status_code == 202
        assert retry.json()["status"] == "succeeded"

    def test_a_retry_after_202_opens_no_second_attempt(self, caller: Any, order_id: str, channels: Any) -> None:
        """Whatever became of the first: here it was charged in another amount, and the order is still to be paid."""
        wechat = channels["wechat"]
        wechat.failing, wechat.failure = frozenset({"create", "query"}), OutcomeUnknown("timed out")
        pay = {"path": f"orders/{order_id}/payment", "body": {"channel": "wechat"}, "key": "pay"}
        assert caller.post(**pay).status_code == 202
        wechat.failing = frozenset()
        number = number_of(order_id, "wechat")
        wechat.trades[number] = Opened(4080, "CNY")
        settle(wechat.pay(number))
        asked = len(wechat.calls)

        for _ in range(2):  # the first of them ends the entry, the second only shows what there is
            retry = caller.post(**pay)
            assert (retry.status_code, len(retry.json()["attempts"])) == (202, 1)
        assert Attempt.objects.count() == 1
        assert len(wechat.calls) == asked
        assert caller.post(**{**pay, "key": "pay-anew"}).status_code == 201
        assert Attempt.objects.count() == 2

    def test_nobody_needs_to_retry_what_has_become_known(self, caller: Any, order_id: str, channels: Any) -> None:
        def entries() -> list[str]:
            return [entry.state for entry in LedgerEntry.objects.filter(key__in=["pay", "cancel"])]

        def ask() -> list[tuple[int, str]]:
            pay = caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
            cancel = caller.post(f"orders/{order_id}/cancel", key="cancel")
            return [(answer.status_code, answer.json()["status"]) for answer in (pay, cancel)]

        wechat = channels["wechat"]
        silent(wechat)
        assert ask() == [(202, "uncertain"), (202, "pending")]
        assert (tasks.complete_ledger(timestamp=0), entries()) == ({}, ["uncertain", "uncertain"])

        wechat.failing = frozenset()
        assert lifecycle.expire(order_id=Order.objects.get().id) == "closed"
        assert tasks.complete_ledger(timestamp=0) == {"settled": 2}
        assert entries() == ["finished", "finished"]
        assert ask() == [(202, "closed"), (202, "closed")]

    def test_a_key_that_heard_a_5xx_is_free_once_all_that_it_did_is_known(
        self, caller: Any, order_id: str, channels: Any
    ) -> None:
        wechat = channels["wechat"]
        wechat.failing, wechat.failure = frozenset({"create"}), ProviderRejected("NO_AUTH", "not allowed")
        pay = {"path": f"orders/{order_id}/payment", "body": {"channel": "wechat"}, "key": "pay"}
        assert caller.post(**pay).status_code == 502
        assert LedgerEntry.objects.get(key="pay").subject == f"order:{order_id}", "an operator finds it"
        assert tasks.complete_ledger(timestamp=0) == {}, "its caller's own retries come first"

        LedgerEntry.objects.filter(key="pay").update(lease_until=Now() - timedelta(minutes=3))
        silent(channels["alipay"])
        caller.post(f"orders/{order_id}/payment", {"channel": "alipay"}, key="other")
        assert tasks.complete_ledger(timestamp=0) == {}, "something of the order is in doubt"
        Attempt.objects.filter(channel="alipay").update(status="failed")
        assert tasks.complete_ledger(timestamp=0) == {"settled": 2}
        assert not LedgerEntry.objects.filter(key="pay").exists()
        wechat.failing = frozenset()
        assert caller.post(**pay).status_code == 201

    def test_a_key_that_heard_202_is_never_free(
        self, caller: Any, order_id: str, channels: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(asking, "AGAIN", timedelta(0))
        pay = {"path": f"orders/{order_id}/payment", "body": {"channel": "wechat"}, "key": "pay"}
        silent(channels["wechat"])
        assert caller.post(**pay).status_code == 202
        channels["wechat"].failure = ProviderUnavailable("refused")
        assert caller.post(**pay).status_code == 202  # nobody says what became of it
        channels["wechat"].failing = frozenset({"create"})
        assert caller.post(**pay).status_code == 503
        LedgerEntry.objects.filter(key="pay").update(lease_until=Now() - timedelta(minutes=3))
        Attempt.objects.update(status="failed")
        assert tasks.complete_ledger(timestamp=0) == {"settled": 1}
        assert LedgerEntry.objects.get(key="pay").state == "finished"
        assert caller.post(**pay).status_code == 202

    def test_another_channel_is_not_uncertain_because_the_first_is(
        self, caller: Any, order_id: str, channels: Any
    ) -> None:
        silent(channels["wechat"])
        assert caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay").status_code == 202
        by_alipay = caller.post(f"orders/{order_id}/payment", {"channel": "alipay"}, key="pay2")

        assert (by_alipay.status_code, by_alipay.json()["status"]) == (201, "uncertain")
        assert by_alipay.json()["attempts"][1]["next_action"]["type"] == "redirect"

    def test_what_is_open_elsewhere_is_closed_once_the_order_is_paid(
        self, caller: Any, order_id: str, channels: Any
    ) -> None:
        for channel in ("wechat", "alipay"):
            caller.post(f"orders/{order_id}/payment", {"channel": channel}, key=channel)
        settle(channels["wechat"].pay(number_of(order_id, "wechat")))
        reconcile.run_due()

        assert [method for method, _ in channels["alipay"].calls] == ["create", "close"]
        assert Attempt.objects.get(channel="alipay").status == "closed"
        assert Payment.objects.get().status == "succeeded"

    @pytest.mark.parametrize("over", ["paid by another channel", "cancelled", "out of time"])
    def test_the_timer_opens_nothing_that_nobody_may_pay_any_more(
        self, caller: Any, order_id: str, channels: Any, over: str
    ) -> None:
        wechat = channels["wechat"]
        silent(wechat)
        assert caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay").status_code == 202
        if over == "cancelled":
            assert caller.post(f"orders/{order_id}/cancel", key="cancel").status_code == 202
        elif over == "out of time":
            Attempt.objects.update(expires_at="2020-01-01T00:00:00Z")
        else:
            caller.post(f"orders/{order_id}/payment", {"channel": "alipay"}, key="pay2")
            settle(channels["alipay"].pay(number_of(order_id, "alipay")))
        wechat.failing = frozenset()
        Attempt.objects.filter(channel="wechat").update(next_query_at=Now())
        reconcile.run_due()

        assert [method for method, _ in wechat.calls].count("create") == 1, "and that one was never answered"
        assert Attempt.objects.get(channel="wechat").status == "closed"

    def test_an_order_in_a_currency_that_the_channel_does_not_take_is_409(
        self, caller: Any, order_id: str, channels: Any
    ) -> None:
        channels["alipay"].currencies = frozenset({"CNY"})
        Order.objects.update(currency="JPY")
        refused = caller.post(f"orders/{order_id}/payment", {"channel": "alipay"}, key="pay")

        assert (refused.status_code, refused.json()["code"]) == (409, "channel_unavailable")
        assert refused.json()["detail"] == "This payment channel takes no JPY."
        assert not Attempt.objects.exists()
        assert caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay2").status_code == 201

    def test_a_paid_order_is_409(self, caller: Any, order_id: str, channels: Any) -> None:
        caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
        settle(channels["wechat"].pay(number_of(order_id, "wechat")))

        assert caller.get(f"orders/{order_id}").json()["status"] == "paid"
        response = caller.post(f"orders/{order_id}/payment", {"channel": "alipay"}, key="pay2")
        assert (response.status_code, response.json()["code"]) == (409, "order_paid")

    def test_a_closed_or_expired_order_is_409(self, caller: Any, order_id: str, channels: Any) -> None:
        Order.objects.update(expires_at="2020-01-01T00:00:00Z")
        late = caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
        assert caller.post(f"orders/{order_id}/cancel", key="cancel").status_code == 200
        closed = caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay2")

        for response in (late, closed):
            assert (response.status_code, response.json()["code"]) == (409, "order_closed")
        assert not channels["wechat"].calls

    def test_a_channel_that_is_not_set_up_is_409(self, caller: Any, order_id: str, channels: Any) -> None:
        response = caller.post(f"orders/{order_id}/payment", {"channel": "stripe"}, key="pay")

        assert (response.status_code, response.json()["code"]) == (409, "channel_unavailable")
        assert not Payment.objects.exists()

    @pytest.mark.parametrize("body", [{}, {"channel": "cash"}, {"channel": None}])
    def test_an_unknown_channel_is_400(self, caller: Any, order_id: str, channels: Any, body: Any) -> None:
        assert caller.post(f"orders/{order_id}/payment", body, key="pay").status_code == 400
        assert caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay").status_code == 201

    @pytest.mark.parametrize(
        ("failure", "status", "code"),
        [
            (ProviderRejected("PARAM_ERROR", "no"), 502, "provider_refused"),
            (ProviderUnavailable("refused"), 503, "provider_unavailable"),
        ],
    )
    def test_a_failing_provider_leaves_the_key_to_try_again(
        self, caller: Any, order_id: str, channels: Any, failure: Exception, status: int, code: str
    ) -> None:
        wechat = channels["wechat"]
        wechat.failing, wechat.failure = frozenset({"create"}), failure
        response = caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
        assert (response.status_code, response.json()["code"]) == (status, code)

        wechat.failing = frozenset()
        again = caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
        assert again.status_code == 201
        assert len(wechat.trades) == 1

    def test_no_transaction_is_open_while_the_provider_is_called(
        self, caller: Any, order_id: str, channels: Any
    ) -> None:
        seen: list[bool] = []
        channels["wechat"].before_close = lambda number: seen.append(connection.in_atomic_block)
        caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
        caller.post(f"orders/{order_id}/cancel", key="cancel")

        assert seen == [False]


FORM = "application/x-www-form-urlencoded"
BODIES_OF_NO_USE = [
    pytest.param("text/plain", b"zzz", 415, id="text"),
    pytest.param("application/json", b"{", 400, id="broken"),
    pytest.param(FORM, b"a=1", 415, id="form"),
    pytest.param(f"{FORM}; charset=utf-16", b"", 400, id="form in utf-16, empty"),
    pytest.param("multipart/form-data; x=1", b"--x", 415, id="multipart without boundary"),
]


class TestCancel:
    def test_closes_at_the_provider_and_puts_the_units_back(
        self, caller: Any, order_id: str, channels: Any
    ) -> None:
        caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
        assert stock() == 98
        response = caller.post(f"orders/{order_id}/cancel", key="cancel")

        assert response.status_code == 200
        assert response.json()["status"] == "closed"
        assert response["ETag"] == f'"{response.json()["version"]}"'
        assert [method for method, _ in channels["wechat"].calls] == ["create", "close"]
        assert stock() == 100

    def test_again_by_any_key_changes_nothing(self, caller: Any, order_id: str, channels: Any) -> None:
        first = caller.post(f"orders/{order_id}/cancel", key="cancel")
        replay = caller.post(f"orders/{order_id}/cancel", key="cancel")
        again = caller.post(f"orders/{order_id}/cancel", key="other")

        assert (replay.content, replay["Idempotent-Replayed"]) == (first.content, "true")
        assert (again.status_code, again.json()) == (200, first.json())
        assert stock() == 100

    def test_a_paid_order_is_409(self, caller: Any, order_id: str, channels: Any) -> None:
        caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
        settle(channels["wechat"].pay(number_of(order_id, "wechat")))
        response = caller.post(f"orders/{order_id}/cancel", key="cancel")

        assert (response.status_code, response.json()["code"]) == (409, "order_paid")
        assert stock() == 98

    def test_a_shopper_who_pays_during_the_cancel_wins(self, caller: Any, order_id: str, channels: Any) -> None:
        caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
        channels["wechat"].before_close = channels["wechat"].pay
        response = caller.post(f"orders/{order_id}/cancel", key="cancel")

        assert (response.status_code, response.json()["code"]) == (409, "order_paid")
        assert caller.get(f"orders/{order_id}").json()["status"] == "paid"
        assert stock() == 98

    def test_a_silent_provider_is_202_and_ends_later(self, caller: Any, order_id: str, channels: Any) -> None:
        wechat = channels["wechat"]
        caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
        wechat.failing, wechat.failure = frozenset({"close", "query"}), OutcomeUnknown("timed out")
        first = caller.post(f"orders/{order_id}/cancel", key="cancel")

        assert (first.status_code, first.json()["status"]) == (202, "pending")
        assert stock() == 98
        blocked = caller.post(f"orders/{order_id}/payment", {"channel": "alipay"}, key="pay2")
        assert (blocked.status_code, blocked.json()["code"]) == (409, "order_closed")

        wechat.failing = frozenset()
        second = caller.post(f"orders/{order_id}/cancel", key="cancel")
        assert (second.status_code, second.json()["status"]) == (202, "closed")
        assert stock() == 100

    def test_a_payment_that_lands_while_the_close_is_uncertain_is_taken(
        self, caller: Any, order_id: str, channels: Any
    ) -> None:
        wechat = channels["wechat"]
        caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
        wechat.failing, wechat.failure = frozenset({"close", "query"}), OutcomeUnknown("timed out")
        caller.post(f"orders/{order_id}/cancel", key="cancel")
        settle(wechat.pay(number_of(order_id, "wechat")))

        assert caller.get(f"orders/{order_id}").json()["status"] == "paid"
        assert tasks.complete_ledger(timestamp=0) == {}, "the refusal is for the caller to hear"
        first, again = (caller.post(f"orders/{order_id}/cancel", key="cancel") for _ in range(2))
        assert (first.status_code, first.json()["code"]) == (409, "order_paid")
        assert again.content == first.content
        assert stock() == 98

    def test_a_channel_that_was_switched_off_meanwhile_is_waited_for(
        self, caller: Any, order_id: str, channels: Any
    ) -> None:
        """And does not keep the others open."""
        for channel in ("alipay", "wechat"):
            caller.post(f"orders/{order_id}/payment", {"channel": channel}, key=channel)
        alipay = channels.pop("alipay")
        cancelled = caller.post(f"orders/{order_id}/cancel", key="cancel")
        assert (cancelled.status_code, cancelled.json()["status"]) == (202, "pending")
        assert [attempt["status"] for attempt in shown_attempts(caller)] == ["pending", "closed"]

        channels["alipay"] = alipay
        assert caller.post(f"orders/{order_id}/cancel", key="cancel").json()["status"] == "closed"

    def test_needs_a_key(self, caller: Any, order_id: str, channels: Any) -> None:
        assert caller.post(f"orders/{order_id}/cancel").json()["code"] == "idempotency_key_missing"

    @pytest.mark.parametrize(("kind", "body", "status"), BODIES_OF_NO_USE)
    def test_a_body_that_cannot_be_read_is_refused_before_the_key(
        self, caller: Any, order_id: str, channels: Any, kind: str, body: bytes, status: int
    ) -> None:
        def cancel(kind: str, body: bytes) -> Any:
            path, headers = f"/api/v1/orders/{order_id}/cancel", {"Idempotency-Key": "cancel"}
            return caller.http.generic("POST", path, body, kind, headers=headers)

        refused = cancel(kind, body)
        assert (refused.status_code, refused["Content-Type"]) == (status, "application/problem+json")
        assert Order.objects.get().status == "pending"
        # what curl says of an empty body is a form
        assert (cancel(FORM, b"") if "form" in kind else cancel("application/json", b"{}")).status_code == 200


def test_a_full_refund_shows_on_the_order(caller: Any, order_id: str, channels: Any) -> None:
    caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay")
    number = number_of(order_id, "wechat")
    settle(channels["wechat"].pay(number))
    settle(channels["wechat"].fact(FactKind.REFUNDED, number))

    assert caller.get(f"orders/{order_id}").json()["status"] == "refunded"
    assert stock() == 98, "goods may have left; putting them back is a person's decision"
