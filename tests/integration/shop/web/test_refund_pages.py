"""Refunds on the order's page, and the phone's ways to pay."""

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
from tests.integration.shop.web.test_pages import Visit, form_of
from tests.payments_settings import changed

PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148 Safari/604.1"


@pytest.fixture
def paid(visit: Visit) -> Visit:
    visit.pay()
    settle(visit.fact())
    return visit


@pytest.mark.parametrize("requested", [0, 1])
def test_what_a_dispute_took_is_not_offered(paid: Visit, channels: Any, requested: int) -> None:
    asked = paid.asked()
    for _ in range(requested):
        assert paid.ask("1").status_code == 302
    charge = channels["wechat"].fact(FactKind.PAID, number_of(paid.order.id.hex, "wechat"))
    settle(replace(charge, kind=FactKind.TAKEN, provider_txn_id="du", paid_txn_id=charge.provider_txn_id))
    page = paid.page()
    assert ("Amount (up to" in page, "being refunded" in page) == (False, False)
    assert paid.ask("1", asked).status_code == 302
    assert "Nothing is left to refund" in paid.page()
    assert Refund.objects.count() == requested


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


def test_a_part_asked_for_twice_goes_back_once_and_is_followed(paid: Visit) -> None:
    assert form_of(paid.get(), f"{paid.path}/refund")["amount"] == "39.80"
    fields = paid.asked("5.5")
    first, second = (paid.ask("5.5", fields) for _ in range(2))
    assert first["Location"] == second["Location"] == paid.path
    refund = Refund.objects.get()
    assert (refund.amount_minor, refund.reason, refund.status) == (550, "too small", "processing")
    assert "¥5.50 · too small With the payment service. Your bank may take a few days" in paid.page()
    assert "We are packing your order." in paid.page(), "a part goes back"
    assert "Refund in progress" in paid.shopper.get("/orders").text
    before = paid.status()
    assert before["final"] is False, "the page goes on looking"

    given_back(refund, paid.channels)
    after = paid.status()
    assert (after["final"], after["state"] != before["state"]) == (True, True)
    assert "¥5.50 · too small Refunded" in paid.page()
    assert "up to ¥34.30" in paid.page()
    assert "We refunded ¥5.50, so you paid ¥34.30." in paid.page()
    assert "Partly refunded" in paid.shopper.get("/orders").text
    assert paid.ask("39.80", fields)["Location"] == paid.path  # the old form with another amount: renewed
    assert Refund.objects.count() == 1


@pytest.mark.parametrize("all_of_it", [False, True])
def test_what_went_back_in_the_provider_s_pages_is_said_too(paid: Visit, all_of_it: bool) -> None:
    if all_of_it:
        paid.ask("39.80")
    fact = paid.channels["wechat"].fact(FactKind.REFUNDED, Attempt.objects.get().out_trade_no)
    settle(replace(fact, amount_minor=550, out_refund_no="portal-1", provider_txn_id="5030-portal"))
    page = paid.page()
    assert ("The full amount is being refunded" in page) == all_of_it
    assert ("We refunded ¥5.50, so you paid ¥34.30." in page, "up to ¥34.30" in page) == (not all_of_it,) * 2


def test_an_amount_that_is_none_is_said_at_the_field(paid: Visit) -> None:
    for amount in ("0", "-1", "1.999", "x", ""):
        answer = paid.ask(amount)
        assert (answer.status_code, b'id="amount-error"' in answer.content) == (400, True)
        assert form_of(answer, f"{paid.path}/refund")["amount"] == amount
        shown = paid.get("/refund", {"amount": amount})
        assert (shown.status_code, b'id="amount-error"' in shown.content) == (400, True)


def test_too_much_is_said_in_the_form_which_keeps_what_was_typed(paid: Visit) -> None:
    sent, second_tab = paid.asked(), paid.asked()
    more = paid.ask("39.81", sent)
    assert (more.status_code, b"Nothing was refunded. Enter a lower amount." in more.content) == (409, True)
    again = form_of(more, f"{paid.path}/refund")
    assert (again["amount"], again["reason"]) == ("39.81", "too small")
    assert paid.ask("10").status_code == 302

    replayed = paid.ask("39.81", sent)
    assert (replayed.status_code, replayed["Idempotent-Replayed"]) == (409, "true")
    assert "up to ¥29.80" in replayed.text, "with what is true by now"
    assert paid.ask("29.80").status_code == 302
    nothing_left = paid.ask("39.80", second_tab)
    assert nothing_left["Location"] == paid.path
    assert "A refund of the full amount was already requested." in paid.page()
    assert sorted(Refund.objects.values_list("amount_minor", flat=True)) == [1000, 2980]


def test_a_refund_is_confirmed_first_with_the_amount_and_where_it_goes(paid: Visit) -> None:
    assert "Paid with WeChat Pay Transaction txn-paid-" in paid.page()
    question = paid.get("/refund", {"amount": "5.5", "reason": "too small"}).text
    for words in ("Request this refund?", "¥5.50", "goes back to WeChat Pay", "too small", "Yes, refund"):
        assert words in question
    assert not Refund.objects.exists()
    assert paid.get("/refund")["Location"] == paid.path
    assert paid.shopper.post(f"{paid.path}/refund", paid.asked("39.80"))["Location"] == paid.path
    assert paid.get("/refund", {"amount": "1"})["Location"] == paid.path, "nothing is left to refund"


def test_refusals_are_sentences(paid: Visit) -> None:
    paid.wechat.fails(ProviderRejected("NOAUTH", "internal words"), "refund")
    refused = paid.ask("1")
    assert (refused.status_code, b"Refund declined" in refused.content) == (409, True)
    assert b"internal words" not in refused.content
    assert "Paid, refund declined" in paid.shopper.get("/orders").text
    said = "The payment service declined it. No money was moved. We are looking into it. You can request it again. Declined"
    assert f"¥1.00 · too small {said}" in paid.page()

    paid.wechat.failure = ProviderUnavailable("connection refused")
    assert paid.ask("2")["Location"] == paid.path
    noted = paid.page()
    assert "We saved your refund request" in noted
    assert "¥2.00 · too small We have your request and are passing it on. Requested" in noted


def test_a_refund_that_is_not_carried_out_is_not_shown_as_on_its_way(paid: Visit) -> None:
    assert paid.ask("39.80").status_code == 302
    page = paid.page()
    assert "The full amount is being refunded to your original payment method." in page
    assert ("packing" in page, "Thank you" in page) == (False, False)
    before = paid.status()["state"]
    paid.wechat.refund_result = RefundResult(status=RefundStatus.UNFUNDED, message="NOT_ENOUGH")
    refunds.submit_refund(Refund.objects.get().pk)
    page, delayed = paid.page(), paid.status()
    assert "Refund delayed ¥39.80 This refund is delayed at the payment service. We keep trying" in page
    assert "¥39.80 · too small This refund is delayed" in page
    assert "being refunded" not in page
    assert "NOT_ENOUGH" not in page
    assert "Refund delayed" in paid.shopper.get("/orders").text
    assert (delayed["final"], delayed["state"] != before) == (False, True), "the open page is renewed"

    given_back(Refund.objects.get(), paid.channels)
    assert "Refunded ¥39.80 The full amount was refunded" in paid.page()
    assert paid.status()["final"] is True


def test_refunds_are_listed_in_the_order_in_which_they_were_asked(paid: Visit) -> None:
    for amount in ("1", "2"):
        assert paid.ask(amount).status_code == 302
    newest = Refund.objects.get(amount_minor=100)  # their numbers say nothing of their order
    Refund.objects.exclude(pk=newest.pk).update(created_at=newest.created_at - timedelta(hours=1))
    page = paid.page()
    assert page.index("¥2.00 · too small") < page.index("¥1.00 · too small")


def test_only_the_owner_and_only_what_is_paid(other: User, visit: Visit) -> None:
    assert "Request a refund" not in visit.page()
    csrf = form_of(visit.get("/cancel"), f"{visit.path}/cancel")
    unpaid = visit.shopper.post(f"{visit.path}/refund", {**csrf, "amount": "1"})
    assert (unpaid.status_code, b"Order not found" in unpaid.content) == (404, True)
    foreign = Client()
    foreign.force_login(other)
    # a form of this page has a token
    assert foreign.post(f"{visit.path}/refund", {"amount": "1"}).status_code == 400
    assert not Refund.objects.exists()


class TestOnAPhone:
    """The wallet is opened on the phone itself; a code can be had instead."""

    @pytest.fixture(autouse=True)
    def _held_in_the_hand(self, shopper: Client) -> None:
        shopper.defaults["HTTP_USER_AGENT"] = PHONE

    def test_wechat_by_h5_then_by_code_and_back(self, visit: Visit) -> None:
        visit.pay()
        attempt = Attempt.objects.get()
        assert (attempt.method, attempt.payer) == ("h5", {})  # the address is not kept once it is open
        for method in ("native", "h5", "native"):
            switch = visit.form("/method")
            assert switch["channel"] == "wechat"
            answer = visit.shopper.post(f"{visit.path}/method", switch | {"method": method})
            assert answer["Location"].startswith("https://wechat.invalid/" if method == "h5" else visit.path)
            shown = visit.shopper.get(f"{visit.path}?by=wechat.{method}").text
            assert f'name="method" value="{"native" if method == "h5" else "h5"}"' in shown
        assert sorted(Attempt.objects.values_list("method", flat=True)) == ["h5", "native"], "one of each"
        assert Payment.objects.count() == 1

    def test_a_link_that_is_over_is_replaced_unless_it_was_paid(self, visit: Visit) -> None:
        visit.pay()
        attempt = Attempt.objects.get()
        late = timezone.now() + timedelta(seconds=20)  # too short to get there
        Attempt.objects.update(next_action_url=f"{attempt.next_action_url}&old", next_action_expires_at=late)
        again = visit.form("/go-on")
        assert (again["channel"], again["method"]) == ("wechat", "h5")
        answer = visit.shopper.post(f"{visit.path}/go-on", again)
        renewed = Attempt.objects.get()
        assert renewed.id == attempt.id, "under the same number"
        assert answer["Location"] == renewed.next_action_url
        assert "&old" not in renewed.next_action_url
        assert renewed.next_action_expires_at
        assert renewed.next_action_expires_at > late + timedelta(minutes=4)
        assert renewed.payer == {}

        Attempt.objects.update(next_action_expires_at=timezone.now())
        again = visit.form("/go-on")
        visit.fact()
        assert visit.shopper.post(f"{visit.path}/go-on", again).status_code == 302
        assert Payment.objects.get().status == "succeeded", "the provider was asked"

    def test_a_code_that_is_over_is_replaced(self, visit: Visit) -> None:
        visit.shopper.defaults["HTTP_USER_AGENT"] = f"{PHONE} MicroMessenger/8.0"
        visit.pay()
        assert Attempt.objects.get().method == "native", "inside WeChat"
        assert "/method" not in visit.get().text
        assert "<svg" in visit.get().text.split("summary")[0]
        Attempt.objects.update(next_action_expires_at=timezone.now())
        shown = visit.get()
        assert "This code has expired." in shown.text
        assert visit.shopper.post(f"{visit.path}/go-on", form_of(shown, f"{visit.path}/go-on")).status_code == 302
        assert "This code has expired." not in visit.get().text

    def test_alipay_by_its_page_or_a_code(self, visit: Visit) -> None:
        visit.pay("alipay")
        assert Attempt.objects.get().method == "page"
        switch = visit.form("/method")
        assert switch["method"] == "precreate"
        assert visit.shopper.post(f"{visit.path}/method", switch).status_code == 302
        assert Attempt.objects.filter(method="precreate", channel="alipay").exists()


class TestMoneyThatDoesNotCount:
    """It came in and goes back: the shopper sees both, whatever became of the order."""

    def test_another_amount_leaves_the_order_to_be_paid(self, visit: Visit) -> None:
        visit.pay()
        before = visit.status()["state"]
        settle(visit.fact(amount_minor=1000))
        said = "We received a payment that doesn't match this order."
        page = visit.page()
        assert f"{said} We are refunding the payment of ¥10.00. This order is not paid yet." in page
        assert "Pay ¥39.80" in page
        assert visit.status()["state"] != before, "the open page is renewed"

        given_back(Refund.objects.get(), visit.channels)
        page = visit.page()
        assert f"{said} We refunded the payment of ¥10.00." in page
        assert "¥10.00 · wrong amount" in page

    def test_of_another_currency_is_named_in_that(self, visit: Visit) -> None:
        visit.pay()
        settle(visit.fact(currency="USD"))
        assert "We are refunding the payment of $39.80." in visit.page()

    def test_after_the_order_was_closed(self, demo: User, visit: Visit) -> None:
        visit.pay()
        lifecycle.cancel(order_id=visit.order.id, user_id=demo.pk)
        page = visit.page()
        assert "It was cancelled. If a payment still arrives, we refund it automatically." in page
        settle(visit.wechat.fact(FactKind.PAID, number_of(visit.order.id.hex, "wechat")))
        page = visit.page()
        assert "We received a payment after this order was closed. We are refunding the payment of ¥39.80." in page
        assert "If a payment still arrives" not in page
        assert visit.status()["final"] is False
        given_back(Refund.objects.get(), visit.channels)
        assert "We refunded the payment of ¥39.80." in visit.page()
        assert visit.status()["final"] is True

    def test_that_could_not_be_given_back(self, visit: Visit) -> None:
        visit.pay()
        settle(visit.fact(amount_minor=1000))
        for status, said in (
            (RefundStatus.UNFUNDED, "The refund of the payment of ¥10.00 is delayed at the payment service."),
            (RefundStatus.FAILED, "The refund of the payment of ¥10.00 was declined."),
        ):
            visit.wechat.refund_result = RefundResult(status=status, message="no")
            refunds.submit_refund(Refund.objects.get().pk)
            page = visit.page()
            assert said in page
            assert "being refunded" not in page

    @pytest.mark.parametrize(
        ("act", "then"),
        [
            (approval.approve, "We are refunding the second payment of ¥39.80."),
            (approval.decline, "Our staff decided not to refund the second payment of ¥39.80."),
        ],
    )
    def test_above_the_limit_a_person_decides(self, visit: Visit, settings: Any, act: Any, then: str) -> None:
        settings.PAYMENTS = changed(REFUNDS={"APPROVE_ABOVE": {"CNY": 3979}})
        for channel in ("wechat", "alipay"):
            visit.pay(channel)
        for channel in ("wechat", "alipay"):
            settle(visit.fact(channel))
        assert "has to approve the refund of the second payment of ¥39.80" in visit.page()
        before = visit.status()
        assert before["final"] is False
        by = Operator(user_id=User.objects.create_superuser("op").pk, reason="looked at it")
        act(Anomaly.objects.get(), by=by)
        assert then in visit.page()
        assert visit.status()["state"] != before["state"], "the open page is renewed"

    def test_a_person_who_must_decide_hears_of_it(self, visit: Visit) -> None:
        visit.pay()
        fact = visit.fact()
        settle(fact)
        assert "You were charged once." in visit.page()
        before = visit.status()["state"]
        settle(replace(fact, merchant="1999999999", provider_txn_id="another"))
        page = visit.page()
        assert "We are looking into the payment of ¥39.80." in page
        assert "charged once" not in page
        assert visit.status()["state"] != before


def test_a_paid_page_is_live_and_promises_nothing_while_a_second_payment_may_come(visit: Visit) -> None:
    for channel in ("wechat", "alipay"):
        visit.pay(channel)
    settle(visit.fact())
    page, paid = visit.page(), visit.status()
    assert ("Paid. Thank you!" in page, "charged once" in page) == (True, False)
    assert (paid["status"], paid["final"]) == ("paid", False)

    settle(visit.channels["alipay"].fact(FactKind.CLOSED, number_of(visit.order.id.hex, "alipay")))
    closed = visit.status()
    assert (closed["final"], closed["state"] != paid["state"]) == (True, True)
    assert "You were charged once." in visit.page()

    # it was under way
    settle(visit.channels["alipay"].fact(FactKind.PAID, number_of(visit.order.id.hex, "alipay")))
    twice = visit.status()
    assert (twice["final"], twice["state"] != closed["state"]) == (False, True)
    page = visit.page()
    assert "You paid twice. We are refunding the second payment of ¥39.80." in page
    assert "¥39.80 · extra payment" in page
    assert "up to ¥39.80" in page, "and what it was paid with can go back"
    assert ("charged once" in page, "so you paid" in page) == (False, False)
    assert "Refund in progress" not in visit.shopper.get("/orders").text


def test_an_order_whose_time_ran_out_says_so(visit: Visit) -> None:
    Order.objects.update(expires_at=timezone.now())
    lifecycle.expire(order_id=visit.order.id)
    assert "The time to pay ran out." in visit.page()
