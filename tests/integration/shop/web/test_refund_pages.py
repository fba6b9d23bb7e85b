"""Asking for a refund on the order's page: what the API does, once; and the phone's ways to pay."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from payments.errors import ProviderRejected, ProviderUnavailable
from payments.models import Anomaly, Attempt, Payment, Refund
from payments.operations import approval
from payments.operations.actions import Operator
from payments.providers.base import FactKind, RefundResult, RefundStatus
from payments.refunds import steps as refunds
from shop.models import Order
from shop.orders import lifecycle
from tests.integration.shop.settling import number_of, settle
from tests.integration.shop.web.test_pages import form_of, pay
from tests.payments_settings import changed

PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148 Safari/604.1"


@pytest.fixture
def paid(shopper: Client, order: Order, channels: Any) -> Order:
    pay(shopper, order, "wechat")
    settle(channels["wechat"].pay(number_of(order.id.hex, "wechat")))
    return order


def page_of(shopper: Client, order: Order) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", shopper.get(f"/orders/{order.id.hex}").content.decode()))


def asked(shopper: Client, order: Order, amount: str = "1") -> dict[str, str]:
    """Return the fields of the page that asks whether to refund this."""
    action = f"/orders/{order.id.hex}/refund"
    return form_of(shopper.get(action, {"amount": amount, "reason": "too small"}), action)


def ask(shopper: Client, order: Order, amount: str, fields: dict[str, str] | None = None) -> Any:
    fields = fields or asked(shopper, order)
    return shopper.post(f"/orders/{order.id.hex}/refund", {**fields, "amount": amount, "reason": "too small"})


def given_back(refund: Refund, channels: Any) -> None:
    fact = channels["wechat"].fact(FactKind.REFUNDED, refund.attempt.out_trade_no)
    settle(
        replace(
            fact,
            amount_minor=refund.amount_minor,
            out_refund_no=refund.out_refund_no,
            provider_txn_id=f"refund-{refund.out_refund_no}",
        )
    )


def test_a_part_asked_for_twice_goes_back_once_and_is_followed(
    shopper: Client, paid: Order, channels: Any
) -> None:
    path = f"/orders/{paid.id.hex}"
    assert form_of(shopper.get(path), f"{path}/refund")["amount"] == "39.80"
    fields = asked(shopper, paid, "5.5")
    first, second = (ask(shopper, paid, "5.5", fields) for _ in range(2))
    assert first["Location"] == second["Location"] == path
    refund = Refund.objects.get()
    assert (refund.amount_minor, refund.reason, refund.status) == (550, "too small", "processing")
    assert "¥5.50 · too small With the payment service. Your bank may take a few days" in page_of(shopper, paid)
    assert "Refund in progress" in shopper.get("/orders").content.decode()
    before = shopper.get(f"{path}/status").json()
    assert before["final"] is False, "the page goes on looking"

    given_back(refund, channels)
    after = shopper.get(f"{path}/status").json()
    assert (after["final"], after["state"] != before["state"]) == (True, True)
    assert "¥5.50 · too small Refunded" in page_of(shopper, paid)
    assert "up to ¥34.30" in page_of(shopper, paid)
    assert "We refunded ¥5.50, so you paid ¥34.30." in page_of(shopper, paid)
    assert "Partly refunded" in shopper.get("/orders").content.decode()
    assert ask(shopper, paid, "39.80", fields)["Location"] == path  # the old form with another amount: renewed
    assert Refund.objects.count() == 1


@pytest.mark.parametrize("amount", ["0", "-1", "1.999", "x", ""])
def test_an_amount_that_is_none_is_said_at_the_field(shopper: Client, paid: Order, amount: str) -> None:
    answer = ask(shopper, paid, amount)
    assert (answer.status_code, b'id="amount-error"' in answer.content) == (400, True)
    assert form_of(answer, f"/orders/{paid.id.hex}/refund")["amount"] == amount
    shown = shopper.get(f"/orders/{paid.id.hex}/refund", {"amount": amount})
    assert (shown.status_code, b'id="amount-error"' in shown.content) == (400, True)


def test_too_much_is_said_in_the_form_which_keeps_what_was_typed(
    shopper: Client, paid: Order, channels: Any
) -> None:
    path = f"/orders/{paid.id.hex}"
    sent, second_tab = asked(shopper, paid), asked(shopper, paid)
    more = ask(shopper, paid, "39.81", sent)
    assert (more.status_code, b"Nothing was refunded. Enter a lower amount." in more.content) == (409, True)
    again = form_of(more, f"{path}/refund")
    assert (again["amount"], again["reason"]) == ("39.81", "too small")
    assert ask(shopper, paid, "10").status_code == 302

    replayed = ask(shopper, paid, "39.81", sent)
    assert (replayed.status_code, replayed["Idempotent-Replayed"]) == (409, "true")
    assert "up to ¥29.80" in replayed.content.decode(), "with what is true by now"
    assert ask(shopper, paid, "29.80").status_code == 302
    nothing_left = ask(shopper, paid, "39.80", second_tab)
    assert nothing_left["Location"] == path
    assert "A refund of the full amount was already requested." in page_of(shopper, paid)
    assert sorted(Refund.objects.values_list("amount_minor", flat=True)) == [1000, 2980]


def test_a_refund_is_confirmed_first_with_the_amount_and_where_it_goes(
    shopper: Client, paid: Order, channels: Any
) -> None:
    path = f"/orders/{paid.id.hex}"
    assert "Paid with WeChat Pay Transaction txn-paid-" in page_of(shopper, paid)
    question = shopper.get(f"{path}/refund", {"amount": "5.5", "reason": "too small"}).content.decode()
    for words in ("Request this refund?", "¥5.50", "goes back to WeChat Pay", "too small", "Yes, refund"):
        assert words in question
    assert not Refund.objects.exists()
    assert shopper.get(f"{path}/refund")["Location"] == path
    assert shopper.post(f"{path}/refund", asked(shopper, paid, "39.80"))["Location"] == path
    assert shopper.get(f"{path}/refund", {"amount": "1"})["Location"] == path, "nothing is left to refund"


def test_refusals_are_sentences(shopper: Client, paid: Order, channels: Any) -> None:
    wechat = channels["wechat"]
    wechat.fails(ProviderRejected("NOAUTH", "internal words"), "refund")
    refused = ask(shopper, paid, "1")
    assert (refused.status_code, b"Refund declined" in refused.content) == (409, True)
    assert b"internal words" not in refused.content
    assert "Paid, refund declined" in shopper.get("/orders").content.decode()
    told = "The payment service declined it. No money was moved. We are looking into it. You can request it again. Declined"
    assert f"¥1.00 · too small {told}" in page_of(shopper, paid)

    wechat.failure = ProviderUnavailable("connection refused")
    assert ask(shopper, paid, "2")["Location"] == f"/orders/{paid.id.hex}"
    noted = page_of(shopper, paid)
    assert "We saved your refund request" in noted
    assert "¥2.00 · too small We have your request and are passing it on. Requested" in noted


@pytest.mark.parametrize("status", [RefundStatus.UNFUNDED, RefundStatus.STUCK])
def test_a_refund_that_is_not_carried_out_is_not_shown_as_on_its_way(
    shopper: Client, paid: Order, channels: Any, status: RefundStatus
) -> None:
    path = f"/orders/{paid.id.hex}"
    channels["wechat"].refund_result = RefundResult(status=status, message="NOT_ENOUGH")
    assert ask(shopper, paid, "39.80").status_code == 302
    page, before = page_of(shopper, paid), shopper.get(f"{path}/status").json()
    assert "Refund delayed ¥39.80 This refund is delayed at the payment service. We keep trying" in page
    assert "¥39.80 · too small This refund is delayed" in page
    assert "being refunded" not in page
    assert "NOT_ENOUGH" not in page
    assert "Refund delayed" in shopper.get("/orders").content.decode()
    assert before["final"] is False

    given_back(Refund.objects.get(), channels)
    assert "Refunded ¥39.80 The full amount was refunded" in page_of(shopper, paid)
    assert shopper.get(f"{path}/status").json()["final"] is True


def test_a_refund_that_is_delayed_renews_the_open_page(shopper: Client, paid: Order, channels: Any) -> None:
    path = f"/orders/{paid.id.hex}"
    assert ask(shopper, paid, "39.80").status_code == 302
    assert "The full amount is being refunded" in page_of(shopper, paid)
    before = shopper.get(f"{path}/status").json()["state"]
    channels["wechat"].refund_result = RefundResult(status=RefundStatus.STUCK, message="account closed")
    refunds.submit_refund(Refund.objects.get().pk)
    assert shopper.get(f"{path}/status").json()["state"] != before


def test_refunds_are_listed_in_the_order_in_which_they_were_asked(
    shopper: Client, paid: Order, channels: Any
) -> None:
    for amount in ("1", "2"):
        assert ask(shopper, paid, amount).status_code == 302
    newest = Refund.objects.get(amount_minor=100)  # their numbers say nothing of their order
    Refund.objects.exclude(pk=newest.pk).update(created_at=newest.created_at - timedelta(hours=1))
    page = page_of(shopper, paid)
    assert page.index("¥2.00 · too small") < page.index("¥1.00 · too small")


def test_only_the_owner_and_only_what_is_paid(
    shopper: Client, stranger: Any, other: User, order: Order, channels: Any
) -> None:
    path = f"/orders/{order.id.hex}"
    assert "Request a refund" not in page_of(shopper, order)
    csrf = form_of(shopper.get(f"{path}/cancel"), f"{path}/cancel")
    unpaid = shopper.post(f"{path}/refund", {**csrf, "amount": "1"})
    assert (unpaid.status_code, b"Order not found" in unpaid.content) == (404, True)
    foreign = Client()
    foreign.force_login(other)
    assert foreign.post(f"{path}/refund", {"amount": "1"}).status_code == 400  # a form of this page has a token
    assert not Refund.objects.exists()


class TestOnAPhone:
    """The wallet is opened on the phone itself; a code can be had instead."""

    @pytest.fixture(autouse=True)
    def _held_in_the_hand(self, shopper: Client) -> None:
        shopper.defaults["HTTP_USER_AGENT"] = PHONE

    def test_wechat_by_h5_then_by_code_and_back(self, shopper: Client, order: Order, channels: Any) -> None:
        path = f"/orders/{order.id.hex}"
        pay(shopper, order, "wechat")
        attempt = Attempt.objects.get()
        assert (attempt.method, attempt.payer) == ("h5", {})  # the address is not kept once it is open
        for method in ("native", "h5", "native"):
            switch = form_of(shopper.get(path), f"{path}/method")
            assert switch["channel"] == "wechat"
            answer = shopper.post(f"{path}/method", switch | {"method": method})
            assert answer["Location"].startswith("https://wechat.invalid/" if method == "h5" else path)
            shown = shopper.get(f"{path}?by=wechat.{method}").content.decode()
            assert f'name="method" value="{"native" if method == "h5" else "h5"}"' in shown
        assert sorted(Attempt.objects.values_list("method", flat=True)) == ["h5", "native"], "one of each"
        assert Payment.objects.count() == 1

    def test_a_link_that_is_over_is_replaced(self, shopper: Client, order: Order, channels: Any) -> None:
        path = f"/orders/{order.id.hex}"
        pay(shopper, order, "wechat")
        attempt = Attempt.objects.get()
        late = timezone.now() + timedelta(seconds=20)  # too short to get there
        Attempt.objects.update(next_action_url=f"{attempt.next_action_url}&old", next_action_expires_at=late)
        again = form_of(shopper.get(path), f"{path}/go-on")
        assert (again["channel"], again["method"]) == ("wechat", "h5")
        answer = shopper.post(f"{path}/go-on", again)
        renewed = Attempt.objects.get()
        assert renewed.id == attempt.id, "under the same number"
        assert answer["Location"] == renewed.next_action_url
        assert "&old" not in renewed.next_action_url
        assert renewed.next_action_expires_at
        assert renewed.next_action_expires_at > late + timedelta(minutes=4)
        assert renewed.payer == {}

    def test_a_code_that_is_over_is_replaced(self, shopper: Client, order: Order, channels: Any) -> None:
        path = f"/orders/{order.id.hex}"
        shopper.defaults["HTTP_USER_AGENT"] = ""
        pay(shopper, order, "wechat")
        assert "<svg" in shopper.get(path).content.decode().split("summary")[0]
        Attempt.objects.update(next_action_expires_at=timezone.now())
        shown = shopper.get(path)
        assert "This code has expired." in shown.content.decode()
        assert shopper.post(f"{path}/go-on", form_of(shown, f"{path}/go-on")).status_code == 302
        assert "This code has expired." not in shopper.get(path).content.decode()

    def test_of_a_trade_that_was_paid_meanwhile_there_is_no_fresh_link(
        self, shopper: Client, order: Order, channels: Any
    ) -> None:
        path = f"/orders/{order.id.hex}"
        pay(shopper, order, "wechat")
        Attempt.objects.update(next_action_expires_at=timezone.now())
        again = form_of(shopper.get(path), f"{path}/go-on")
        channels["wechat"].pay(number_of(order.id.hex, "wechat"))
        assert shopper.post(f"{path}/go-on", again).status_code == 302
        assert Payment.objects.get().status == "succeeded", "the provider was asked"

    def test_inside_wechat_and_on_a_desktop_a_code(self, shopper: Client, order: Order, channels: Any) -> None:
        shopper.defaults["HTTP_USER_AGENT"] = f"{PHONE} MicroMessenger/8.0"
        pay(shopper, order, "wechat")
        assert Attempt.objects.get().method == "native"
        assert "/method" not in shopper.get(f"/orders/{order.id.hex}").content.decode()

    def test_alipay_by_its_page_or_a_code(self, shopper: Client, order: Order, channels: Any) -> None:
        path = f"/orders/{order.id.hex}"
        pay(shopper, order, "alipay")
        assert Attempt.objects.get().method == "page"
        switch = form_of(shopper.get(path), f"{path}/method")
        assert switch["method"] == "precreate"
        assert shopper.post(f"{path}/method", switch).status_code == 302
        assert Attempt.objects.filter(method="precreate", channel="alipay").exists()


def test_a_second_payment_that_went_back_is_no_refund_of_the_order(
    shopper: Client, order: Order, channels: Any
) -> None:
    for channel in ("wechat", "alipay"):
        pay(shopper, order, channel)
    for channel in ("wechat", "alipay"):
        settle(channels[channel].pay(number_of(order.id.hex, channel)))

    assert "¥39.80 · extra payment" in page_of(shopper, order)
    assert "Refund in progress" not in shopper.get("/orders").content.decode()
    assert "up to ¥39.80" in page_of(shopper, order), "and what it was paid with can go back"
    assert "so you paid" not in page_of(shopper, order)


def test_the_refund_of_another_amount_is_called_that(shopper: Client, order: Order, channels: Any) -> None:
    pay(shopper, order, "wechat")
    settle(replace(channels["wechat"].pay(number_of(order.id.hex, "wechat")), amount_minor=4080))
    assert "¥40.80 · wrong amount" in page_of(shopper, order)


class TestMoneyThatDoesNotCount:
    """It came in and goes back: the shopper sees both, whatever became of the order."""

    def given_back(self, order: Order, channels: Any) -> None:
        refund = Refund.objects.get()
        assert refund.payment.order_id == order.id
        given_back(refund, channels)

    def test_another_amount_leaves_the_order_to_be_paid(
        self, shopper: Client, order: Order, channels: Any
    ) -> None:
        pay(shopper, order, "wechat")
        before = shopper.get(f"/orders/{order.id.hex}/status").json()["state"]
        settle(replace(channels["wechat"].pay(number_of(order.id.hex, "wechat")), amount_minor=1000))
        told = "We received a payment that doesn't match this order."
        page = page_of(shopper, order)
        assert f"{told} We are refunding the payment of ¥10.00. This order is not paid yet." in page
        assert "Pay ¥39.80" in page
        assert shopper.get(f"/orders/{order.id.hex}/status").json()["state"] != before, "the open page is renewed"

        self.given_back(order, channels)
        assert f"{told} We refunded the payment of ¥10.00." in page_of(shopper, order)

    def test_of_another_currency_is_named_in_that(self, shopper: Client, order: Order, channels: Any) -> None:
        pay(shopper, order, "wechat")
        settle(replace(channels["wechat"].pay(number_of(order.id.hex, "wechat")), currency="USD"))
        assert "We are refunding the payment of $39.80." in page_of(shopper, order)

    def test_after_the_order_was_closed(self, shopper: Client, demo: User, order: Order, channels: Any) -> None:
        pay(shopper, order, "wechat")
        lifecycle.cancel(order_id=order.id, user_id=demo.pk)
        page = page_of(shopper, order)
        assert "It was cancelled. If a payment still arrives, we refund it automatically." in page
        settle(channels["wechat"].fact(FactKind.PAID, number_of(order.id.hex, "wechat")))
        page = page_of(shopper, order)
        assert "We received a payment after this order was closed. We are refunding the payment of ¥39.80." in page
        assert "If a payment still arrives" not in page
        assert shopper.get(f"/orders/{order.id.hex}/status").json()["final"] is False
        self.given_back(order, channels)
        assert "We refunded the payment of ¥39.80." in page_of(shopper, order)
        assert shopper.get(f"/orders/{order.id.hex}/status").json()["final"] is True

    @pytest.mark.parametrize(
        ("status", "told"),
        [
            (
                RefundStatus.UNFUNDED,
                "The refund of the payment of ¥10.00 is delayed at the payment service.",
            ),
            (RefundStatus.FAILED, "The refund of the payment of ¥10.00 was declined."),
        ],
    )
    def test_that_could_not_be_given_back(
        self, shopper: Client, order: Order, channels: Any, status: RefundStatus, told: str
    ) -> None:
        pay(shopper, order, "wechat")
        settle(replace(channels["wechat"].pay(number_of(order.id.hex, "wechat")), amount_minor=1000))
        channels["wechat"].refund_result = RefundResult(status=status, message="no")
        refunds.submit_refund(Refund.objects.get().pk)
        page = page_of(shopper, order)
        assert told in page
        assert "being refunded" not in page

    @pytest.mark.parametrize(
        ("act", "then"),
        [
            (approval.approve, "We are refunding the second payment of ¥39.80."),
            (approval.decline, "Our staff decided not to refund the second payment of ¥39.80."),
        ],
    )
    def test_above_the_limit_a_person_decides(
        self, shopper: Client, order: Order, channels: Any, settings: Any, act: Any, then: str
    ) -> None:
        settings.PAYMENTS = changed(REFUNDS={"APPROVE_ABOVE": {"CNY": 3979}})
        for channel in ("wechat", "alipay"):
            pay(shopper, order, channel)
        for channel in ("wechat", "alipay"):
            settle(channels[channel].pay(number_of(order.id.hex, channel)))
        assert "has to approve the refund of the second payment of ¥39.80" in page_of(shopper, order)
        status = f"/orders/{order.id.hex}/status"
        before = shopper.get(status).json()
        assert before["final"] is False
        by = Operator(user_id=User.objects.create_superuser("op").pk, reason="looked at it")
        act(Anomaly.objects.get(), by=by)
        assert then in page_of(shopper, order)
        assert shopper.get(status).json()["state"] != before["state"], "the open page is renewed"

    def test_that_a_person_decides_about_is_told(self, shopper: Client, order: Order, channels: Any) -> None:
        pay(shopper, order, "wechat")
        fact = channels["wechat"].pay(number_of(order.id.hex, "wechat"))
        settle(fact)
        assert "You were charged once." in page_of(shopper, order)
        before = shopper.get(f"/orders/{order.id.hex}/status").json()["state"]
        settle(replace(fact, merchant="1999999999", provider_txn_id="another"))
        page = page_of(shopper, order)
        assert "We are looking into the payment of ¥39.80." in page
        assert "charged once" not in page
        assert shopper.get(f"/orders/{order.id.hex}/status").json()["state"] != before


def test_a_paid_page_is_live_and_promises_nothing_while_a_second_payment_may_come(
    shopper: Client, order: Order, channels: Any
) -> None:
    path = f"/orders/{order.id.hex}/status"
    for channel in ("wechat", "alipay"):
        pay(shopper, order, channel)
    settle(channels["wechat"].pay(number_of(order.id.hex, "wechat")))
    page, paid = page_of(shopper, order), shopper.get(path).json()
    assert ("Paid. Thank you!" in page, "charged once" in page) == (True, False)
    assert (paid["status"], paid["final"]) == ("paid", False)

    settle(channels["alipay"].fact(FactKind.CLOSED, number_of(order.id.hex, "alipay")))
    closed = shopper.get(path).json()
    assert (closed["final"], closed["state"] != paid["state"]) == (True, True)
    assert "You were charged once." in page_of(shopper, order)

    settle(channels["alipay"].fact(FactKind.PAID, number_of(order.id.hex, "alipay")))  # it was under way
    twice = shopper.get(path).json()
    assert (twice["final"], twice["state"] != closed["state"]) == (False, True)
    page = page_of(shopper, order)
    assert "You paid twice. We are refunding the second payment of ¥39.80." in page
    assert "charged once" not in page


def test_an_order_whose_time_ran_out_says_so(shopper: Client, order: Order) -> None:
    Order.objects.update(expires_at=timezone.now())
    lifecycle.expire(order_id=order.id)
    assert "The time to pay ran out." in page_of(shopper, order)


def test_an_order_that_is_paid_back_is_not_being_packed(shopper: Client, paid: Order, channels: Any) -> None:
    assert ask(shopper, paid, "1").status_code == 302
    assert "We are packing your order." in page_of(shopper, paid), "a part goes back"
    assert ask(shopper, paid, "38.80").status_code == 302
    page = page_of(shopper, paid)
    assert "The full amount is being refunded to your original payment method." in page
    assert "packing" not in page
    assert "Thank you" not in page
