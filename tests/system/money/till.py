"""A shop's till for tests: the API's calls, time that passes on demand, the witness.

Nothing is scripted: the API is asked through its whole middleware stack, notifications come over HTTP, jobs are those
that stand in the queue's table, timers are the functions that the worker runs.
"""

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import F, Sum
from django.db.models.functions import Now
from django.utils import timezone
from procrastinate.contrib.django import app
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient

from payments.channels import configured as channels
from payments.errors import ProviderError
from payments.models import Anomaly, Attempt, Payment, PaymentEvent, Refund
from payments.operations.figures import trial_balance
from payments.reconciliation import bills, reconcile
from payments.settlement import events
from payments.settlement.journal import HELD, ORDERS
from shop import tasks
from shop.models import Order, OrderItem, Product
from tests.emptying import rows
from tests.running import MUG, until
from tests.sandbox import Sandbox

PRICE_MINOR = 1990
MUGS = 100
CHANNELS = ("wechat", "alipay", "stripe")
EVERY = pytest.mark.parametrize("channel", CHANNELS)

# of `Till.state`
PAID = ("paid", "succeeded", PRICE_MINOR, 0)
IN_PART = ("paid", "partially_refunded", PRICE_MINOR, 990)
REFUNDED = ("refunded", "refunded", PRICE_MINOR, PRICE_MINOR)
CLOSED = ("closed", "closed", 0, 0)

# by which method an opening is a call: Alipay's page is an address that we sign, and nobody is asked
CALLING = {"wechat": "native", "alipay": "precreate", "stripe": "intent"}

ROUNDS_MAX = 40
JOB_TRIES = 5  # as the tasks' RetryStrategy says


class Till:
    """One shopper, one shelf of mugs, one sandbox.

    Args:
        sandbox: shared by all tests; what stands there from earlier ones is not looked at.
    """

    def __init__(self, sandbox: Sandbox, user: User) -> None:
        self.sandbox = sandbox
        self.user = user
        self._token = Token.objects.create(user=user).key
        self._before: frozenset[str] = frozenset()

    def forget_the_past(self) -> None:
        """What other tests left: jobs (no table of Django's, so nobody empties it) and trades."""
        rows("DELETE FROM procrastinate_jobs")
        self._before = frozenset(self.sandbox.charges())

    # what the shopper and the shop do

    def post(self, path: str, body: Any = None, *, key: str | None = None) -> Any:
        """Call the API under a key of its own, from any thread."""
        http = APIClient()
        http.credentials(HTTP_AUTHORIZATION=f"Token {self._token}")
        headers = {"Idempotency-Key": key or uuid4().hex}
        return http.post(f"/api/v1/{path}", body, format="json", headers=headers)

    def order(self) -> Order:
        """One mug."""
        answer = self.post("orders", MUG)
        assert answer.status_code == 201, answer.content
        return Order.objects.get(pk=answer.json()["id"])

    def start(self, order: Order, channel: str, *, method: str | None = None, key: str | None = None) -> Any:
        """Begin to pay; the API's answer."""
        body = {"channel": channel} | ({"method": method} if method else {})
        return self.post(f"orders/{order.id.hex}/payment", body, key=key)

    def open(self, order: Order, channel: str, *, method: str | None = None) -> Attempt:
        """An attempt that the shopper can pay."""
        answer = self.start(order, channel, method=method)
        assert answer.status_code == 201, answer.content
        attempt = self.attempt(order, channel)
        self.visit(attempt)
        return attempt

    def attempt(self, order: Order, channel: str) -> Attempt:
        """The order's newest attempt by the channel."""
        found = Attempt.objects.filter(payment__order_id=order.id, channel=channel).order_by("-id").first()
        assert found is not None
        return found

    def paid(self, channel: str) -> Attempt:
        """An order that the shopper has just paid."""
        attempt = self.open(self.order(), channel)
        self.sandbox.pay(attempt.out_trade_no)
        return attempt

    def bought(self, channel: str) -> Attempt:
        """An order that is paid, notified and settled."""
        attempt = self.paid(channel)
        self.settle()
        return attempt

    def refund(self, attempt: Attempt, amount_minor: int, *, key: str | None = None) -> Any:
        """Ask for a refund; the API's answer."""
        body = {"amount_minor": amount_minor, "reason": "changed mind"}
        return self.post(f"payments/{attempt.payment_id.hex}/refunds", body, key=key)

    def refund_by_hand(self, attempt: Attempt, amount_minor: int) -> None:
        """Somebody gives back in the provider's own pages."""
        body = {"out_trade_no": attempt.out_trade_no, "amount_minor": amount_minor}
        self.sandbox.http.post("/_control/refund", json=body).raise_for_status()

    def dispute(self, attempt: Attempt, status: str) -> None:
        """The payer's bank disputes the payment (``open``), or that ends (``won``, ``lost``)."""
        body = {"out_trade_no": attempt.out_trade_no, "status": status}
        self.sandbox.http.post("/_control/dispute", json=body).raise_for_status()

    def cancel(self, order: Order, *, key: str | None = None) -> Any:
        return self.post(f"orders/{order.id.hex}/cancel", key=key)

    def pay_if_open(self, attempt: Attempt) -> bool:
        """The shopper tries to pay; whether money moved."""
        answer = self.sandbox.http.post("/_control/pay", json={"out_trade_no": attempt.out_trade_no})
        assert answer.status_code in (200, 404, 409), answer.text
        return bool(answer.status_code == 200)

    def copy_intent(self, attempt: Attempt) -> str:
        """Somebody opens a second intent of Stripe's with our metadata; its number there."""
        form = {
            "amount": str(attempt.amount_minor),
            "currency": "cny",
            "payment_method_types[0]": "alipay",
            "metadata[out_trade_no]": attempt.out_trade_no,
            "metadata[notify_url]": f"{settings.PAYMENTS['BASE_URL']}/webhooks/stripe",
        }
        key = {"Authorization": f"Bearer {self.sandbox.keys.settings['STRIPE_SECRET_KEY']}"}
        made = self.sandbox.http.post("/stripe/v1/payment_intents", data=form, headers=key).raise_for_status()
        return str(made.json()["id"])

    def visit(self, attempt: Attempt) -> None:
        """The browser follows the address, by which Alipay's trade begins."""
        if attempt.next_action_type == "redirect":
            self.sandbox.http.get(attempt.next_action_url, follow_redirects=True).raise_for_status()

    # time that passes

    def deliveries(self) -> dict[str, int]:
        counts: dict[str, int] = self.sandbox.http.get("/_control/deliveries").raise_for_status().json()
        return counts

    def all_notified(self) -> None:
        """Until the sandbox has no notification left to send."""
        until(lambda: self.deliveries()["due"] == 0)

    def release(self) -> None:
        """Let the one answer go that is held back, as soon as it is."""
        until(lambda: self.sandbox.http.post("/_control/release").json()["released"] == 1)

    def work(self) -> int:
        """Run the queue's jobs with their retries until none is left; how many they were."""
        done = 0
        take = "DELETE FROM procrastinate_jobs WHERE status = 'todo' RETURNING id, task_name, args::text"
        while jobs := sorted(rows(take)):
            for _, name, arguments in jobs:
                _run(name, json.loads(arguments))
            done += len(jobs)
        return done

    def pass_time(self) -> None:
        """Everything that waits for its time falls due, and the timers run once."""
        for model in (Attempt, Refund):
            model.objects.filter(next_query_at__isnull=False).update(next_query_at=Now())
        Order.objects.filter(closing_at__isnull=False).update(closing_at=F("closing_at") - timedelta(minutes=2))
        reconcile.run_as_leader(batch=1000)
        tasks.expire_orders(timestamp=0)
        events.handle_waiting(again=True)

    def settle(self) -> None:
        """Until nothing is on its way any more: notifications, jobs, timers."""
        for _ in range(ROUNDS_MAX):
            self.all_notified()
            moved = self.work()
            self.pass_time()
            if not moved and not self.deliveries()["due"] and not _waiting():
                return
        raise AssertionError("it never settles")

    def compare_today(self, channel: str) -> Any:
        """Compare today's bill of the sandbox, and yesterday's if midnight has passed."""
        zone = channels.current()[channel].zone
        days = {at.astimezone(zone).date() for at in (Attempt.objects.earliest("id").created_at, timezone.now())}
        return [bills.compare(account=channel, day=day) for day in sorted(days)][-1]

    # what is true afterwards

    def ends(
        self,
        attempt: Attempt,
        state: tuple[str, str, int, int],
        *anomalies: tuple[str, bool],
        moved: tuple[int, int] | None = None,
    ) -> None:
        """Settle everything, and check state, moved money and the witness."""
        self.settle()
        there = (self.state(attempt), self.moved(attempt), self.anomalies())
        assert there == (state, state[2:] if moved is None else moved, [*anomalies]), there
        self.witness()

    def bill_agrees(self, attempt: Attempt) -> None:
        """Today's bill says nothing else of the attempt."""
        compared = self.compare_today(attempt.channel)
        assert not compared.differences.filter(out_trade_no=attempt.out_trade_no).exists()

    def charges(self) -> dict[str, dict[str, Any]]:
        """List this test's trades that money moved for, by our number; all of them are ours.

        Only at Stripe can there be a second one under our number; the sandbox calls it by Stripe's own.
        """
        said = {number: one for number, one in self.sandbox.charges().items() if number not in self._before}
        ours = {attempt.out_trade_no for attempt in Attempt.objects.all()}
        assert {number for number in said if not number.startswith("pi_")} <= ours, (
            "the sandbox has trades under numbers that we do not know"
        )
        return {number: one for number, one in said.items() if one["charged_minor"]}

    def moved(self, attempt: Attempt) -> tuple[int, int]:
        """What was charged and given back under the attempt's number."""
        one = self.charges().get(attempt.out_trade_no)
        return (0, 0) if one is None else (one["charged_minor"], one["refunded_minor"])

    def anomalies(self) -> list[tuple[str, bool]]:
        """Of those about a payment: kind, and whether it is settled, oldest first."""
        about_us = Anomaly.objects.filter(payment__isnull=False).order_by("id")
        found = about_us.values_list("kind", "resolved_at")
        return [(kind, resolved_at is not None) for kind, resolved_at in found]

    def state(self, attempt: Attempt) -> tuple[str, str, int, int]:
        """Status of the order and its payment, what is credited, what of it went back."""
        payment = Payment.objects.get(pk=attempt.payment_id)
        order = Order.objects.get(pk=payment.order_id)
        return order.status, payment.status, payment.paid_minor, payment.refunded_minor

    def witness(self) -> None:
        """The sandbox, the journal, the payments, the orders and the shelf agree on money and mugs."""
        balance = {row.account: row.balance_minor for row in trial_balance()}
        assert sum(balance.values()) == 0, "the journal does not add up"
        there = dict.fromkeys(CHANNELS, 0)
        for one in self.charges().values():
            if "seller" not in one:
                there[one["channel"]] += one["charged_minor"] - one["refunded_minor"]
        in_books = dict.fromkeys(CHANNELS, 0)
        for account, debit_minor in balance.items():
            if account.startswith("provider:"):
                in_books[account.split(":")[1]] += debit_minor
        assert in_books == there, "books and sandbox differ"
        totals = Payment.objects.aggregate(paid=Sum("paid_minor"), refunded=Sum("refunded_minor"))
        kept_minor = (totals["paid"] or 0) - (totals["refunded"] or 0)
        assert (-balance.get(ORDERS, 0), -balance.get(HELD, 0)) == (kept_minor, 0)
        assert sum(there.values()) == kept_minor
        for payment in Payment.objects.all():
            _fits(payment)
        sold = OrderItem.objects.exclude(order__status="closed").aggregate(units=Sum("quantity"))["units"] or 0
        assert Product.objects.get(sku="mug").stock == MUGS - sold, "units were lost or released twice"


def _fits(payment: Payment) -> None:
    """The order's status says what its payment does."""
    status = Order.objects.get(pk=payment.order_id).status
    left_minor = payment.paid_minor - payment.refunded_minor
    fitting = {"pending", "closed"} if not payment.paid_minor else {"paid"} if left_minor else {"refunded"}
    assert status in fitting, f"order {payment.order_id.hex} is {status}, its payment {payment.status}"


def _run(name: str, arguments: dict[str, Any]) -> None:
    """Run a job with the queue's retries; in the end the timer asks a provider that is away."""
    for _ in range(JOB_TRIES):
        try:
            app.tasks[name].func(**arguments)
        except ProviderError:
            continue
        return


def _waiting() -> bool:
    """Whether a job, a refund or an event is left; an unpaid attempt may stay open."""
    jobs = rows("SELECT 1 FROM procrastinate_jobs WHERE status = 'todo'")
    refunds = Refund.objects.filter(status__in=["requested", "processing", "uncertain"])
    return bool(jobs) or refunds.exists() or PaymentEvent.objects.filter(handled_at__isnull=True).exists()
