"""Payments in the admin: everything to see, nothing to edit, and actions that say what they do and what came of it."""

import csv
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings
from django.utils import timezone

from idempotency.admin import searching
from idempotency.admin.labels import utc
from idempotency.ids import new_id
from payments import display
from payments.attempts import closing
from payments.channels import configured
from payments.errors import NotificationMalformed, OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.models import (
    Anomaly,
    Attempt,
    AuditEntry,
    JournalEntry,
    JournalLine,
    Notification,
    Observation,
    Payment,
    PaymentEvent,
    Refund,
)
from payments.operations import actions
from payments.providers.base import FactKind, RefundResult, RefundStatus, Trade, TradeStatus
from payments.providers.base import RefundStatus as AtProvider
from payments.refunds import steps as refunds
from payments.webhooks import intake as webhooks
from tests.integration.payments.conftest import fold, letter, order_of, paid, payment_of, refunded
from tests.integration.shop.provider import ScriptedProvider
from tests.payments_settings import ON_FIRE, changed
from tests.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)

OpenAttempt = Callable[..., Attempt]

MODELS = (
    *("payment", "attempt", "refund", "observation", "notification", "anomaly", "paymentevent"),
    *("delivery", "journalentry", "journalline"),
)
AWAY = ProviderUnavailable("connection refused")
SILENT = OutcomeUnknown("timed out")
REFUSED = ProviderRejected("NOT_ENOUGH", "balance too small")


class Answering(ScriptedProvider):
    """Tells what became of trades and refunds as the test says; `failure` is raised instead, by everything."""

    trade: TradeStatus = TradeStatus.PENDING
    refund_is: AtProvider = AtProvider.SUCCEEDED

    def query(self, *, out_trade_no: str, reference: str = "") -> Trade:
        self._begin("query", out_trade_no)
        kinds = {TradeStatus.PAID: FactKind.PAID, TradeStatus.CLOSED: FactKind.CLOSED}
        attempt = Attempt.objects.get(pk=out_trade_no)
        kind = kinds.get(self.trade)
        if kind is None:
            return Trade(status=self.trade)
        amount_minor = attempt.amount_minor if kind is FactKind.PAID else 0
        return Trade(status=self.trade, facts=(paid(attempt, kind=kind, amount_minor=amount_minor),))

    def read_notification(self, **given: Any) -> Any:
        return configured.current()["wechat"].read_notification(**given)

    def refund(self, *, out_trade_no: str, out_refund_no: str, amount_minor: int, **rest: Any) -> RefundResult:
        self._begin("refund", out_refund_no)
        if self.refund_is is not RefundStatus.SUCCEEDED:
            return RefundResult(status=self.refund_is)
        fact = paid(
            Attempt.objects.get(pk=out_trade_no),
            kind=FactKind.REFUNDED,
            provider_txn_id=f"r{out_refund_no}",
            amount_minor=amount_minor,
            out_refund_no=out_refund_no,
        )
        return RefundResult(status=RefundStatus.SUCCEEDED, facts=(fact,))

    def query_refund(self, *, out_trade_no: str, out_refund_no: str, reference: str = "") -> RefundResult:
        self._begin("query_refund", out_refund_no)
        return RefundResult(status=RefundStatus.NOT_FOUND)


@pytest.fixture
def bank(channels: None, monkeypatch: pytest.MonkeyPatch) -> Answering:
    made = Answering("wechat", failing=frozenset({"query", "refund", "query_refund"}))
    monkeypatch.setattr("payments.attempts.calling.provider", {"wechat": made}.__getitem__)
    return made


@pytest.fixture
def payment(open_attempt: OpenAttempt, settings: Any) -> Payment:
    """Paid, 19.90 CNY; with a delivery."""
    attempt = open_attempt()
    settings.PAYMENTS = changed(WEBHOOKS={"books": {"URL": "http://127.0.0.1:1", "SECRETS": "whsec_" + "A" * 32}})
    letter(attempt, notification_id="n-paid").send()
    return payment_of(attempt)


@pytest.fixture
def anomaly(open_attempt: OpenAttempt) -> Anomaly:
    """Of a payment that was paid with 5 fen, which go back by policy."""
    letter(open_attempt(), charged_minor=5, notification_id="n-less").send()
    return Anomaly.objects.get()


def page(row: Any, more: str = "change") -> str:
    return f"/admin/payments/{row._meta.model_name}/{row.pk}/{more}/"


def shown(client: Client, address: str, **query: Any) -> str:
    answer = client.get(address, query)
    assert answer.status_code == 200
    return answer.content.decode()


def done(client: Client, address: str, **given: Any) -> list[str]:
    """What the operator is told after sending the form."""
    answer = client.post(address, given, follow=True)
    assert answer.status_code == 200
    assert answer.redirect_chain, re.findall(r'class="errorlist".*?</ul>', answer.content.decode(), re.DOTALL)
    return [str(message) for message in answer.context["messages"]]


def listed(client: Client, model: str, **query: str) -> list[Any]:
    return list(client.get(f"/admin/payments/{model}/", query).context["cl"].result_list)


def audit() -> list[tuple[str, str]]:
    return list(AuditEntry.objects.order_by("pk").values_list("operator", "message"))


class TestPages:
    @pytest.mark.usefixtures("payment", "anomaly")
    @pytest.mark.parametrize("model", MODELS)
    def test_list_and_detail_of_everything_and_no_way_to_edit(self, admin_client: Client, model: str) -> None:
        rows = list(apps.get_model("payments", model).objects.all())
        assert rows
        told = shown(admin_client, f"/admin/payments/{model}/")
        assert [row for row in rows if page(row) not in told] == []
        assert "?o=" not in told  # a click on a column would sort the whole table
        assert admin_client.get(f"/admin/payments/{model}/add/").status_code == 403
        for row in rows:
            assert 'name="_save"' not in shown(admin_client, page(row))
            for more in ("change", "delete"):
                assert admin_client.post(page(row, more), {"post": "yes"}).status_code == 403
        assert list(apps.get_model("payments", model).objects.all()) == rows

    @pytest.mark.usefixtures("channels")
    def test_refunds_are_listed_and_filtered_by_the_time_at_which_they_were_asked(
        self, admin_client: Client, open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(3):  # by policy, whose numbers have no order
            letter(open_attempt(), charged_minor=5, notification_id=f"n-{number}").send()
        newest_first = list(Refund.objects.order_by("pk"))
        for age, row in enumerate(newest_first):
            Refund.objects.filter(pk=row.pk).update(created_at=timezone.now() - timedelta(hours=age))
        told = shown(admin_client, "/admin/payments/refund/")
        assert in_this_order(told, [page(row) for row in newest_first])
        monkeypatch.setattr(searching, "LOOKED_AT", 1)
        told = shown(admin_client, "/admin/payments/refund/", status="requested")
        assert [row for row in newest_first if page(row) in told] == newest_first[:1]

    @pytest.mark.usefixtures("payment", "anomaly")
    @pytest.mark.parametrize("model", MODELS)
    def test_no_list_counts_its_table(self, admin_client: Client, model: str) -> None:
        with CaptureQueriesContext(connection) as captured:
            journal = "kind=moved&account=orders&channel=wechat&booked=7d"
            for query in ("", "_facets=True", "status=pending", "state=all", journal, "q=" + "f" * 32, "q=x"):
                admin_client.get(f"/admin/payments/{model}/?{query}")
        table = f'"payments_{model}"'
        counts = [sql for told in captured if "COUNT(" in (sql := told["sql"]) and table in sql]
        counts = [sql for sql in counts if 'AS "source"' not in sql]  # of the navigation: only what waits
        assert counts
        assert [sql for sql in counts if "LIMIT 10001" not in sql] == []

    @pytest.mark.usefixtures("payment", "anomaly")
    @pytest.mark.parametrize("model", MODELS)
    def test_no_list_asks_about_each_row(
        self, admin_client: Client, open_attempt: OpenAttempt, model: str
    ) -> None:
        def asked() -> int:
            with CaptureQueriesContext(connection) as captured:
                admin_client.get(f"/admin/payments/{model}/", {"state": "all"} if model == "anomaly" else {})
            return len(captured)

        admin_client.get("/admin/")
        before = asked()
        for charged_minor in (7, 1990, 1990):
            letter(open_attempt(), charged_minor=charged_minor).send()
        assert asked() == before

    def test_a_filter_without_an_index_has_a_bound(
        self, admin_client: Client, open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        attempts = [open_attempt() for _ in range(3)]
        monkeypatch.setattr(searching, "LOOKED_AT", 2)
        newest = sorted(attempts, key=lambda attempt: attempt.pk, reverse=True)[:2]
        assert listed(admin_client, "attempt", status="pending") == newest

    def test_the_age_is_read_off_the_number(self, admin_client: Client, payment: Payment) -> None:
        old = UUID(int=(int((timezone.now() - timedelta(days=3)).timestamp() * 1000) << 80) | 7)
        Payment.objects.create(pk=old, order_id=new_id(), amount_minor=1, currency="CNY")
        for span, count in (("1h", 1), ("24h", 1), ("7d", 2), ("30d", 2), ("nonsense", 2)):
            assert len(listed(admin_client, "payment", opened=span)) == count

    @pytest.mark.usefixtures("anomaly")
    def test_every_number_finds_its_row(self, admin_client: Client, payment: Payment) -> None:
        attempt, fact = payment.attempts.get(), Observation.objects.get(attempt__payment=payment)
        policy_refund, filed = Refund.objects.get(), Anomaly.objects.get()
        ours = (payment.pk.hex, str(payment.order_id), f" {attempt.out_trade_no.upper()} ", fact.provider_txn_id)
        other = policy_refund.payment_id.hex
        for model, terms, found in (
            ("payment", ours, [payment]),
            ("payment", [policy_refund.out_refund_no], [policy_refund.payment]),
            ("attempt", [payment.pk.hex, attempt.out_trade_no], [attempt]),
            ("refund", [other], [policy_refund]),
            (
                "notification",
                ["n-paid", attempt.out_trade_no],
                Notification.objects.filter(notification_id="n-paid"),
            ),
            ("anomaly", [other, filed.reference, filed.reference.split("/")[1]], [filed]),
            ("anomaly", ["nothing"], []),
            ("paymentevent", [payment.pk.hex], payment.events.all()),
            ("journalentry", ["held"], JournalEntry.objects.filter(lines__account="held")),
            ("journalentry", [payment.pk.hex], fact.entries.all()),
            ("journalline", ["orders"], JournalLine.objects.filter(account="orders")),
        ):
            for term in terms:
                assert (model, term, listed(admin_client, model, q=term)) == (model, term, list(found))

    def test_every_number_finds_its_fact(self, admin_client: Client, payment: Payment, anomaly: Anomaly) -> None:
        attempt, fact = payment.attempts.get(), Observation.objects.get(attempt__payment=payment)
        refund = Refund.objects.get()
        fold(refunded(refund.attempt, 5, refund.out_refund_no), source="query")
        back, less = Observation.objects.filter(attempt=refund.attempt).order_by("-pk")
        unlike = Observation.objects.create(
            **{"channel": "cash", "merchant": "m", "provider_txn_id": "t-elsewhere", "kind": "paid"},
            **{"attempt": attempt, "amount_minor": 1, "currency": "CNY", "source": "bill"},
        )
        for term, found in (
            (fact.provider_txn_id, [fact]),
            (f" {attempt.out_trade_no.upper()} ", [unlike, fact]),
            (str(payment.pk), [unlike, fact]),
            (refund.out_refund_no, [back]),
            (refund.payment_id.hex, [back, less]),
            ("t-elsewhere", [unlike]),  # of an account that is not configured any more
            (fact.provider_txn_id[:-1], []),
            ("f" * 32, []),
        ):
            assert (term, listed(admin_client, "observation", q=term)) == (term, found)

    @pytest.mark.usefixtures("payment", "anomaly")
    def test_the_journal_is_filtered(self, admin_client: Client, open_attempt: OpenAttempt) -> None:
        fold(paid(open_attempt("alipay")), source="query")
        third, second, first = JournalEntry.objects.order_by("-pk")
        (alipay,) = {line.account for line in third.lines.all()} - {"orders"}
        hour, merchant = {"booked": "1h"}, alipay.rpartition(":")[2]
        for query, found in (
            ({"kind": "moved"}, [third, second, first]),
            ({"kind": "counted"}, []),
            ({"account": "held"}, [second]),
            ({"account": alipay}, [third]),
            ({"account": f"provider:cash:{merchant}"}, [third, second, first]),  # not offered, so not asked for
            ({"channel": "wechat"}, [second, first]),
            ({"channel": "wechat", "account": "orders"}, [first]),
            (hour, [third, second, first]),
            ({"booked": "nonsense"}, [third, second, first]),
            ({"kind": "moved", "account": "orders", **hour}, [third, first]),
        ):
            assert (query, listed(admin_client, "journalentry", **query)) == (query, found)
        for query, found in (
            ({"account": "held"}, ["held"]),
            ({"account": alipay}, [alipay]),
            ({"channel": "alipay"}, [alipay]),
            ({"channel": "stripe"}, []),
            (hour | {"account": "orders"}, ["orders", "orders"]),
        ):
            accounts = [line.account for line in listed(admin_client, "journalline", **query)]
            assert (query, accounts) == (query, found)

    def test_the_journals_age_is_read_off_its_entries(self, admin_client: Client, payment: Payment) -> None:
        """As entries are never changed, the old one is booked so from the beginning, and numbered first."""
        now, ago = JournalEntry.objects.get(), timezone.now() - timedelta(days=3)
        entry = JournalEntry(pk=now.pk - 1_000, observation=now.observation, kind="counted", created_at=ago)
        with transaction.atomic():
            entry.save(force_insert=True)
            for amount in (-5, 5):
                JournalLine.objects.create(
                    pk=amount - 1_000, entry=entry, account=f"a{amount}", amount_minor=amount, currency="CNY"
                )
        for span, count in (("1h", 1), ("24h", 1), ("7d", 2), ("30d", 2)):
            for model, sides in (("journalentry", 1), ("journalline", 2)):
                assert (span, model, len(listed(admin_client, model, booked=span))) == (span, model, count * sides)

    def test_without_a_page_for_orders_the_number_stands_alone(
        self, admin_client: Client, payment: Payment
    ) -> None:
        address = f"/admin/shop/order/{payment.order_id.hex}/change/"
        assert address in shown(admin_client, page(payment))
        for names in ({}, {"order": "admin:nowhere"}):
            with override_settings(IDEMPOTENCY={"SUBJECT_ADMIN": names}):
                told = shown(admin_client, page(payment))
            assert address not in told
            assert payment.order_id.hex in told

    def test_the_ledger_is_one_click_away(self, admin_client: Client, payment: Payment) -> None:
        told = shown(admin_client, page(payment))
        assert f"/admin/idempotency/ledgerentry/?q=payment:{payment.pk.hex}" in told
        assert f"/admin/idempotency/ledgerentry/?q=order:{payment.order_id.hex}" in told


def in_this_order(text: str, wanted: list[str]) -> bool:
    """Whether all of it stands there, each after the one before it."""
    places = [text.index(words) for words in wanted]
    return places == sorted(places)


class TestTimeline:
    def test_everything_in_order_with_links(self, admin_client: Client, payment: Payment, bank: Answering) -> None:
        form = {"number": new_id(), "amount": "5.00", "reason": "came broken", "shown_reason": "sorry"}
        done(admin_client, page(payment, "refund"), **form)
        PaymentEvent.objects.filter(payment=payment).update(handled_at=timezone.now())
        told = shown(admin_client, page(payment))
        history = told[told.index("payments-history") :]
        wanted = [
            "WeChat Pay attempt opened",
            "notification TRANSACTION.SUCCESS",
            "fact: 19.90 CNY paid",
            "debit WeChat Pay (",
            "event 2: succeeded",
            "refund of 5.00 CNY asked for",
            "came broken. Result: reserved.",
            "refund of 5.00 CNY sent",
            "fact: 5.00 CNY refunded",
            "event 4: partially refunded",
            "the money went back.",
        ]
        assert in_this_order(history, wanted)
        rows = [
            *payment.attempts.all(),
            *payment.refunds.all(),
            *payment.events.all(),
            *Observation.objects.all(),
            *Notification.objects.all(),
        ]
        assert [row for row in rows if page(row) not in history] == []
        assert history.count("/admin/payments/journalentry/") == 2

    def test_what_is_filed_of_money_comes_after_it(self, admin_client: Client, open_attempt: OpenAttempt) -> None:
        attempt = open_attempt()
        other = open_attempt("alipay", order_of(attempt))
        for one in (attempt, other):
            assert letter(one).send().status_code in {200, 204}
        told = shown(admin_client, page(payment_of(attempt)))
        history = told[told.index("payments-history") :]
        wanted = [
            "notification TRADE_SUCCESS",
            "debit Alipay (",
            "anomaly: paid twice",
            "policy refund of 19.90 CNY asked for",
        ]
        assert in_this_order(history, wanted)

    def test_what_is_not_filed_under_it_is_found_too(self, admin_client: Client, payment: Payment) -> None:
        attempt = payment.attempts.get()
        fold(paid(attempt, amount_minor=7), source="query")  # the same fact with other content
        told = shown(admin_client, page(payment))
        assert Anomaly.objects.get().payment is None
        assert "anomaly: reported again with other content" in told
        assert page(Anomaly.objects.get()) in told

    def test_a_failed_notification_is_alarming(self, admin_client: Client, broken: Notification) -> None:
        attempt = Attempt.objects.get(pk=broken.out_trade_no)
        told = shown(admin_client, page(attempt.payment))
        assert "anomaly: a notification could not be processed" in told
        assert told.count('class="payments-alarm"') == 2

    def test_only_what_is_decided_about_links_to_its_history(self, admin_client: Client, anomaly: Anomaly) -> None:
        assert anomaly.payment is not None
        for row, has_one in ((anomaly, True), (Notification.objects.get(), True), (anomaly.payment, False)):
            assert ('class="historylink"' in shown(admin_client, page(row))) is has_one

    def test_who_did_what_is_never_edited(self, admin_client: Client, admin_user: User, anomaly: Anomaly) -> None:
        done(admin_client, page(anomaly, "resolve"), reason="shopper told")
        (entry,) = AuditEntry.objects.all()
        words = "Resolved. Reason: shopper told. Result: settled."
        assert words in shown(admin_client, page(anomaly, "history"))
        listed = "/admin/payments/auditentry/"
        for term in ("", admin_user.get_username(), f"anomaly:{anomaly.pk}"):
            told = shown(admin_client, listed, q=term)
            assert (words in told, f'<a href="{page(anomaly)}">anomaly:{anomaly.pk}</a>' in told) == (True, True)
        assert words not in shown(admin_client, listed, q="anomaly:0")
        assert 'name="_save"' not in shown(admin_client, page(entry))
        for more in ("change", "delete"):
            assert admin_client.post(page(entry, more), {"post": "yes"}).status_code == 403
        notification = Notification.objects.get()
        assert "No operator has done anything about it." in shown(admin_client, page(notification, "history"))
        assert admin_client.get("/admin/payments/anomaly/0/history/").status_code == 404

    def test_the_history_is_for_those_who_may_see_the_row(self, client: Client, anomaly: Anomaly) -> None:
        client.force_login(User.objects.create_user("clerk", is_staff=True))
        assert client.get(page(anomaly, "history")).status_code == 403

    def test_policy_is_told_with_its_state(self, admin_client: Client, anomaly: Anomaly) -> None:
        assert anomaly.payment is not None
        told = shown(admin_client, page(anomaly.payment))
        assert "instead of 19.90 CNY by WeChat Pay" in told
        assert ", the refund is on its way." in told
        assert "0.05 CNY at stake; goes back by policy" in told
        assert "policy refund of 0.05 CNY asked for" in told
        assert "NOT CREDITED" in told


ACTIONS = [
    ("ask", "query_payment", "Ask the provider now"),
    ("refund", "refund_payment", "Refund"),
    ("replay", "replay_notification", "Process again"),
    ("resolve", "resolve_anomaly", "Resolve"),
]


@pytest.fixture
def rows(open_attempt: OpenAttempt, payment: Payment, anomaly: Anomaly) -> dict[str, Any]:
    """A row for each action on which it can be done."""
    return {
        "ask": payment_of(open_attempt()),
        "refund": payment,
        "replay": Notification.objects.get(notification_id="n-paid"),
        "resolve": anomaly,
    }


class TestPermissions:
    @pytest.mark.parametrize(("action", "permission", "button"), ACTIONS)
    def test_each_action_needs_its_own(
        self, client: Client, rows: dict[str, Any], bank: Answering, action: str, permission: str, button: str
    ) -> None:
        row = rows[action]
        user = User.objects.create_user("clerk", is_staff=True)
        client.force_login(user)
        others = [name for _, name, _ in ACTIONS if name != permission]
        views = [f"view_{model}" for model in MODELS]
        user.user_permissions.set(Permission.objects.filter(codename__in=[*views, *others]))
        assert f'<li><a href="{page(row, action)}">{button}</a></li>' not in shown(client, page(row))
        assert client.get(page(row, action)).status_code == 403
        given = {"reason": "because", "amount": "1.00", "number": new_id()}
        assert client.post(page(row, action), given).status_code == 403
        assert AuditEntry.objects.count() == 0
        user.user_permissions.set(Permission.objects.filter(codename=permission))
        assert client.get(page(row, action)).status_code == 403  # who may not see it may not act on it
        user.user_permissions.set(Permission.objects.filter(codename__in=[*views, permission]))
        assert f'<li><a href="{page(row, action)}">{button}</a></li>' in shown(client, page(row))
        assert "Reason" in shown(client, page(row, action)) or "Resolution" in shown(client, page(row, action))
        done(client, page(row, action), **given)
        assert {name for name, _ in audit()} == {"clerk"}

    @pytest.mark.parametrize(
        "address", ["payment/find/", "journalentry/trial-balance/", "journalentry/trial-balance.csv"]
    )
    def test_own_pages_are_for_those_who_may_see_the_rows(self, client: Client, address: str) -> None:
        user = User.objects.create_user("clerk", is_staff=True)
        client.force_login(user)
        assert client.get(f"/admin/payments/{address}").status_code == 403
        model = address.partition("/")[0]
        user.user_permissions.set(Permission.objects.filter(codename=f"view_{model}"))
        assert client.get(f"/admin/payments/{address}").status_code == 200
        client.logout()
        assert client.get(f"/admin/payments/{address}").status_code == 302

    @pytest.mark.parametrize("action", [action for action, _, _ in ACTIONS])
    def test_a_reason_is_required(self, admin_client: Client, rows: dict[str, Any], action: str) -> None:
        for reason in ("", "   "):
            given = {"reason": reason, "amount": "1.00", "number": new_id()}
            answer = admin_client.post(page(rows[action], action), given)
            assert (answer.status_code, "This field is required." in answer.content.decode()) == (200, True)
        assert (AuditEntry.objects.count(), Refund.objects.filter(anomaly=None).count()) == (0, 0)

    @pytest.mark.parametrize("action", [action for action, _, _ in ACTIONS])
    def test_a_row_that_is_not_there(self, admin_client: Client, rows: dict[str, Any], action: str) -> None:
        row = rows[action]
        nobody = str(new_id()) if isinstance(row.pk, UUID) else 10**9
        assert admin_client.get(page(row, action).replace(str(row.pk), str(nobody))).status_code == 404

    def test_another_sites_form_does_nothing(self, admin_user: User, payment: Payment, bank: Answering) -> None:
        strict = Client(enforce_csrf_checks=True)
        strict.force_login(admin_user)
        given = {"reason": "because", "amount": "1.00", "number": new_id()}
        assert strict.post(page(payment, "refund"), given).status_code == 403
        assert bank.calls == []


class TestAsking:
    @pytest.mark.parametrize(
        ("trade", "words"),
        [
            (TradeStatus.PAID, "it was paid"),
            (TradeStatus.CLOSED, "it ended unpaid"),
            (TradeStatus.PENDING, "it is open and not paid"),
        ],
    )
    def test_what_the_provider_says_counts(
        self, admin_client: Client, open_attempt: OpenAttempt, bank: Answering, trade: TradeStatus, words: str
    ) -> None:
        attempt = open_attempt()
        bank.trade = trade
        assert f"is asked about attempt {attempt.out_trade_no}" in shown(
            admin_client, page(attempt.payment, "ask")
        )
        assert bank.calls == []
        sentence = f"WeChat Pay attempt {attempt.out_trade_no}: {words}."
        assert done(admin_client, page(attempt.payment, "ask"), reason="shopper called") == [sentence]
        assert payment_of(attempt).paid_minor == (1990 if trade is TradeStatus.PAID else 0)
        assert order_of(attempt).status == ("paid" if trade is TradeStatus.PAID else order_of(attempt).status)
        about = f"Asks about WeChat Pay attempt {attempt.out_trade_no}"
        assert audit() == [
            ("admin", f"{about}. Reason: shopper called. Result: begun."),
            ("admin", f"Asked the provider. Reason: shopper called. Result: {sentence}"),
        ]

    def test_an_unheard_of_one_stays_uncertain(
        self, admin_client: Client, open_attempt: OpenAttempt, bank: Answering
    ) -> None:
        attempt = open_attempt(status="uncertain")
        bank.trade = TradeStatus.NOT_FOUND
        (told,) = done(admin_client, page(attempt.payment, "ask"), reason="late")
        assert "the outcome stays unknown" in told
        assert bank.calls == [("query", attempt.out_trade_no)]

    @pytest.mark.parametrize(
        ("failure", "words"),
        [
            (AWAY, "WeChat Pay cannot be reached at the moment; nothing changed."),
            (SILENT, "WeChat Pay gave no answer that can be trusted; nothing changed."),
            (REFUSED, "WeChat Pay refused the question (NOT_ENOUGH: balance too small); nothing changed."),
        ],
    )
    def test_failures_become_sentences(
        self, admin_client: Client, open_attempt: OpenAttempt, bank: Answering, failure: Exception, words: str
    ) -> None:
        attempt, bank.failure = open_attempt(), failure
        (told,) = done(admin_client, page(attempt.payment, "ask"), reason="late")
        assert told.endswith(words)
        assert words in audit()[1][1]
        assert payment_of(attempt).status == "pending"

    def test_a_channel_that_is_gone(self, admin_client: Client, open_attempt: OpenAttempt, settings: Any) -> None:
        attempt = open_attempt()
        settings.PAYMENTS = changed(PROVIDERS={})
        configured.forget()
        (told,) = done(admin_client, page(attempt.payment, "ask"), reason="late")
        assert told.endswith("WeChat Pay is not configured here; nothing changed.")

    def test_open_refunds_keep_their_number(self, admin_client: Client, payment: Payment, bank: Answering) -> None:
        number, bank.failure = new_id(), SILENT
        form = {"number": number, "amount": "5.00", "reason": "came broken"}
        (told,) = done(admin_client, page(payment, "refund"), **form)
        assert "no answer that can be trusted; it stays reserved" in told
        assert "if it does not know it, it is sent now" in shown(admin_client, page(payment, "ask"))
        bank.failure = None
        (told,) = done(admin_client, page(payment, "ask"), reason="go on")
        assert told == f"Refund {number.hex}: the money went back."
        assert {asked for method, asked in bank.calls if method == "refund"} == {number.hex}

    def test_nothing_open_is_nothing_to_ask(self, admin_client: Client, payment: Payment, bank: Answering) -> None:
        assert page(payment, "ask") not in shown(admin_client, page(payment))
        (told,) = done(admin_client, page(payment, "ask"), reason="curious")
        assert told == "Nothing of this payment is open, so there is nothing to ask about."
        assert (bank.calls, audit()) == ([], [])


class TestRefunding:
    def given(self, **changed: Any) -> dict[str, Any]:
        return {"number": new_id(), "amount": "5.00", "reason": "came broken", "shown_reason": "sorry", **changed}

    def test_reserved_sent_and_audited(self, admin_client: Client, payment: Payment, bank: Answering) -> None:
        asked = shown(admin_client, page(payment, "refund"))
        assert "19.90 CNY was paid; 19.90 CNY of it is neither refunded nor on its way back." in asked
        assert 'value="19.90"' in asked
        (number,) = re.findall(r'name="number" value="([0-9a-f-]{36})"', asked)
        (told,) = done(admin_client, page(payment, "refund"), **self.given(number=number))
        refund = Refund.objects.get()
        assert (refund.pk, refund.amount_minor, refund.reason, refund.status) == (
            UUID(number),
            500,
            "sorry",
            "succeeded",
        )
        assert told == f"Refund {refund.out_refund_no}: the money went back."
        name = f"refund {refund.out_refund_no} of 5.00 CNY. Reason: came broken. Result:"
        assert audit() == [
            ("admin", f"Asked for {name} reserved."),
            ("admin", f"Sent {name} Refund {refund.out_refund_no}: the money went back."),
        ]
        payment.refresh_from_db()
        assert (payment.status, payment.refunded_minor) == ("partially_refunded", 500)

    def test_a_double_click_refunds_once(self, admin_user: User, payment: Payment, bank: Answering) -> None:
        form = self.given(amount="19.90")

        def click() -> int:
            client = Client()
            client.force_login(admin_user)
            return client.post(page(payment, "refund"), form).status_code

        assert at_once(*[click] * 4) == [302] * 4
        payment.refresh_from_db()
        assert (Refund.objects.count(), payment.refunded_minor, payment.reserved_minor) == (1, 1990, 0)
        assert len({asked for _, asked in bank.calls}) == 1
        assert [told for _, told in audit() if told.startswith("Asked for")] == [audit()[0][1]]

    def test_the_number_of_another_refund(self, admin_client: Client, payment: Payment, bank: Answering) -> None:
        form = self.given()
        done(admin_client, page(payment, "refund"), **form)
        (told,) = done(admin_client, page(payment, "refund"), **{**form, "amount": "6.00"})
        assert told == "This form has been used for another refund. Open a new one."
        assert Refund.objects.count() == 1

    @pytest.mark.parametrize(
        ("amount", "words"),
        [
            ("0", "more than nothing and not more than was paid"),
            ("19.91", "more than nothing and not more than was paid"),
            ("-1", "Write the amount in digits, as in 19.90."),
            ("5.001", "Write the amount in digits, as in 19.90."),
            ("5,00", "Write the amount in digits, as in 19.90."),
            ("all", "Write the amount in digits, as in 19.90."),
            ("", "This field is required."),
        ],
    )
    def test_amounts_that_are_none(
        self, admin_client: Client, payment: Payment, bank: Answering, amount: str, words: str
    ) -> None:
        answer = admin_client.post(page(payment, "refund"), self.given(amount=amount))
        assert words in answer.content.decode()
        assert Refund.objects.count() == 0

    def test_more_than_is_left_by_now(self, admin_client: Client, payment: Payment, bank: Answering) -> None:
        done(admin_client, page(payment, "refund"), **self.given(amount="15.00"))
        (told,) = done(admin_client, page(payment, "refund"), **self.given(amount="5.00"))
        assert told == "Not so much is left to refund any more. Look again."
        assert len(audit()) == 2
        done(admin_client, page(payment, "refund"), **self.given(amount="4.90"))
        assert page(payment, "refund") not in shown(admin_client, page(payment))

    @pytest.mark.parametrize(
        ("answer", "status", "words"),
        [
            (AWAY, "requested", "cannot be reached at the moment; it stays reserved, and the timer tries again."),
            (SILENT, "uncertain", "the provider gave no answer that can be trusted; it stays reserved"),
            (
                REFUSED,
                "failed",
                "refused it and nothing moved; an anomaly is filed (NOT_ENOUGH: balance too small).",
            ),
            (AtProvider.PROCESSING, "processing", "the provider has taken it and is working on it"),
            (AtProvider.FAILED, "failed", "an anomaly is filed (the provider closed it without moving money)."),
        ],
    )
    def test_whatever_the_provider_answers_becomes_a_sentence(
        self, admin_client: Client, payment: Payment, bank: Answering, answer: Any, status: str, words: str
    ) -> None:
        bank.failure, bank.refund_is = (None, answer) if isinstance(answer, AtProvider) else (answer, None)
        (told,) = done(admin_client, page(payment, "refund"), **self.given())
        assert words in told
        assert words in audit()[1][1]
        assert Refund.objects.get().status == status
        payment.refresh_from_db()
        assert payment.reserved_minor == (0 if status == "failed" else 500)

    def test_no_provider_is_called_inside_a_transaction(self, payment: Payment, bank: Answering) -> None:
        by = actions.Operator(user_id=1, reason="because")
        with transaction.atomic(), pytest.raises(RuntimeError, match="inside a transaction"):
            actions.refund(payment, refund_id=new_id(), amount_minor=1, shown_reason="", by=by)
        assert (bank.calls, Refund.objects.count()) == ([], 0)


@pytest.fixture
def broken(open_attempt: OpenAttempt, settings: Any) -> Notification:
    """A notification whose effect failed; now it would work."""
    works = settings.PAYMENTS
    settings.PAYMENTS = changed(ORDER=ON_FIRE)
    letter(open_attempt(), notification_id="n-broken").send()
    settings.PAYMENTS = works
    row = Notification.objects.get()
    assert row.verdict == "error"
    return row


GAVE_UP = "The database gave up on it, perhaps after it was applied. Try again: its facts count once."


class TestProcessingAgain:
    def test_what_failed_is_applied_now(self, admin_client: Client, broken: Notification) -> None:
        assert "nothing of it is applied" in shown(admin_client, page(broken, "replay"))
        (told,) = done(admin_client, page(broken, "replay"), reason="repaired")
        assert told == "Processed again: its effect is applied."
        broken.refresh_from_db()
        assert (broken.verdict, broken.attempts) == ("applied", 2)
        assert Anomaly.objects.get().resolution == "processed later"
        assert audit() == [
            ("admin", "Processes it again. Reason: repaired. Result: begun."),
            ("admin", f"Processed again. Reason: repaired. Result: {told}"),
        ]

    def test_it_fails_again(self, admin_client: Client, broken: Notification, settings: Any) -> None:
        settings.PAYMENTS = changed(ORDER=ON_FIRE)
        (told,) = done(admin_client, page(broken, "replay"), reason="try")
        assert told == "It failed, and nothing of it is applied: RuntimeError: the shop is on fire"
        assert Observation.objects.count() == 0

    def test_a_signature_that_our_keys_no_longer_verify(self, admin_client: Client, broken: Notification) -> None:
        Notification.objects.update(headers={**broken.headers, "Wechatpay-Nonce": "another"})
        (told,) = done(admin_client, page(broken, "replay"), reason="try")
        assert told.startswith("Our keys do not verify it any more (")
        assert told.endswith("nothing changed.")

    def test_a_channel_that_is_gone(self, admin_client: Client, broken: Notification, settings: Any) -> None:
        settings.PAYMENTS = changed(PROVIDERS={})
        configured.forget()
        (told,) = done(admin_client, page(broken, "replay"), reason="try")
        assert told == "The account WeChat Pay is not configured here; nothing changed."

    def test_bytes_that_cannot_be_read(
        self, admin_client: Client, broken: Notification, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Unreading(ScriptedProvider):
            def read_notification(self, **given: Any) -> Any:
                raise NotificationMalformed("no resource in it")

        monkeypatch.setattr("payments.attempts.calling.provider", {"wechat": Unreading("wechat")}.__getitem__)
        (told,) = done(admin_client, page(broken, "replay"), reason="try")
        assert told == "It cannot be read (no resource in it); nothing changed."

    def test_a_database_that_gives_up(self, admin_client: Client, payment: Payment) -> None:
        row, other = Notification.objects.get(), connection.copy()
        try:
            other.set_autocommit(False)
            with other.cursor() as cursor, connection.cursor() as own:
                cursor.execute("SELECT 1 FROM payments_payment FOR UPDATE")
                own.execute("SET lock_timeout = '50ms'")
                (told,) = done(admin_client, page(row, "replay"), reason="try")
                own.execute("RESET lock_timeout")
            other.rollback()
        finally:
            other.close()
        assert told == GAVE_UP

    def test_a_database_that_takes_no_writes(self, admin_client: Client, payment: Payment) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = on")
        (told,) = done(admin_client, page(Notification.objects.get(), "replay"), reason="try")
        assert told == GAVE_UP
        assert audit() == [("admin", f"Processed again. Reason: try. Result: {told}")]

    def test_every_verdict_has_words(self) -> None:
        assert set(actions.VERDICT_IS) == set(Notification.Verdict)


class TestAProcessThatEndsInBetween:
    """The effect is committed, and what came of it is not written any more: who asked for it, and why, is there."""

    @pytest.fixture
    def ends_after(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        """The process ends as soon as that function is done."""

        def set_it(module: Any, name: str) -> None:
            function = getattr(module, name)

            def and_ends(*given: Any) -> None:
                function(*given)
                raise KeyboardInterrupt

            monkeypatch.setattr(module, name, and_ends)

        return set_it

    def test_a_notification_was_processed_again(
        self, admin_client: Client, broken: Notification, ends_after: Callable[..., None]
    ) -> None:
        ends_after(webhooks, "replay")
        with pytest.raises(KeyboardInterrupt):
            admin_client.post(page(broken, "replay"), {"reason": "repaired"})
        assert order_of(Attempt.objects.get()).status == "paid"
        assert AuditEntry.objects.get().subject == f"notification:{broken.pk}"
        assert audit() == [("admin", "Processes it again. Reason: repaired. Result: begun.")]

    def test_a_provider_was_asked_about_an_attempt(
        self, admin_client: Client, open_attempt: OpenAttempt, bank: Answering, ends_after: Callable[..., None]
    ) -> None:
        attempt, bank.trade = open_attempt(), TradeStatus.PAID
        ends_after(closing, "query_attempt")
        with pytest.raises(KeyboardInterrupt):
            admin_client.post(page(attempt.payment, "ask"), {"reason": "shopper called"})
        assert payment_of(attempt).paid_minor == 1990
        assert AuditEntry.objects.get().subject == f"payment:{attempt.payment_id}"
        about = f"Asks about WeChat Pay attempt {attempt.out_trade_no}"
        assert audit() == [("admin", f"{about}. Reason: shopper called. Result: begun.")]

    def test_a_refund_was_sent(
        self, admin_client: Client, payment: Payment, bank: Answering, ends_after: Callable[..., None]
    ) -> None:
        with transaction.atomic():
            refund = refunds.request_refund(payment_id=payment.pk, amount_minor=500, reason="")
        ends_after(refunds, "submit_refund")
        with pytest.raises(KeyboardInterrupt):
            admin_client.post(page(payment, "ask"), {"reason": "go on"})
        payment.refresh_from_db()
        assert payment.refunded_minor == 500
        about = f"Asks about refund {refund.out_refund_no} of 5.00 CNY"
        assert audit() == [("admin", f"{about}. Reason: go on. Result: begun.")]

    def test_a_mistake_of_ours_leaves_the_line_too(
        self, admin_client: Client, open_attempt: OpenAttempt, bank: Answering
    ) -> None:
        attempt, bank.failure = open_attempt(), RuntimeError("a bug")
        with pytest.raises(RuntimeError, match="a bug"):
            admin_client.post(page(attempt.payment, "ask"), {"reason": "late"})
        assert [name for name, _ in audit()] == ["admin"]

    def test_no_line_can_be_rolled_back_with_what_is_around_it(
        self, open_attempt: OpenAttempt, broken: Notification, bank: Answering
    ) -> None:
        payment, by = payment_of(open_attempt()), actions.Operator(user_id=1, reason="because")
        for act in (lambda: actions.ask(payment, by=by), lambda: actions.process_again(broken, by=by)):
            with transaction.atomic(), pytest.raises(RuntimeError, match="cannot be nested"):
                act()
        broken.refresh_from_db()
        assert (bank.calls, broken.verdict, AuditEntry.objects.count()) == ([], "error", 0)


class TestAnomalies:
    def test_open_ones_come_first_and_the_oldest_of_them(self, admin_client: Client) -> None:
        kinds = Anomaly.Kind
        made = [
            Anomaly.objects.create(kind=kinds.UNKNOWN_TRADE, channel="wechat", reference=f"m/{number}")
            for number in range(4)
        ]
        Anomaly.objects.filter(pk__in=[made[0].pk, made[2].pk]).update(resolved_at=timezone.now(), resolution="ok")

        found = partial(listed, admin_client, "anomaly")
        assert found() == [made[1], made[3]]
        assert found(state="all")[:2] == [made[1], made[3]]
        assert {*found(state="settled")} == {made[0], made[2]}
        assert found(kind="paid_twice") == []

    def test_the_list_tells_money_policy_age_and_payment(self, admin_client: Client, anomaly: Anomaly) -> None:
        Anomaly.objects.update(created_at=timezone.now() - timedelta(days=3))
        told = shown(admin_client, "/admin/payments/anomaly/").replace("\xa0", " ")
        assert anomaly.payment_id is not None
        for words in (
            "0.05 CNY",
            "gives 0.05 CNY back: requested",
            "3 days",
            f"/payment/{anomaly.payment_id}/change/",
        ):
            assert words in told
        detail = shown(admin_client, page(anomaly))
        assert page(Refund.objects.get()) in detail
        assert "It is refunded. See that the refund ends" in detail

    def test_what_was_told_is_money_and_words(self, admin_client: Client, anomaly: Anomaly) -> None:
        lines = dict(display.details(anomaly))
        assert (lines["amount"], lines["amount asked for"]) == ("0.05 CNY", "19.90 CNY")
        detail = shown(admin_client, page(anomaly))
        assert '<th scope="row">amount asked for</th><td>19.90 CNY</td>' in detail
        assert "_minor" not in detail

    def test_each_amount_that_was_told_keeps_its_currency(self, anomaly: Anomaly) -> None:
        kept = Observation.objects.get()
        told = {"amount_minor": 5, "currency": "USD", "expected_minor": 1990, "first_minor": 5}
        anomaly.detail = told
        assert [words for _, words in display.details(anomaly)] == [
            "0.05 USD",
            "USD",
            "19.90 CNY",
            f"0.05 {kept.currency}",
        ]
        anomaly.detail, anomaly.payment = {"amount_minor": 500, "message": "no"}, None
        assert display.details(anomaly)[0] == ("amount", "500 minor units of an unknown currency")

    def test_resolving_takes_it_off_the_list_for_good(self, admin_client: Client, anomaly: Anomaly) -> None:
        asked = shown(admin_client, page(anomaly, "resolve"))
        assert "The policy gives 0.05 CNY back: requested. It continues, resolved or not." in asked
        assert done(admin_client, page(anomaly, "resolve"), reason="shopper told") == ["The anomaly is resolved."]
        anomaly.refresh_from_db()
        assert (anomaly.resolution, anomaly.resolved_at is None) == ("shopper told", False)
        assert page(anomaly, "resolve") not in shown(admin_client, page(anomaly))
        before = f"It has been resolved before, {utc(anomaly.resolved_at)} UTC: shopper told"
        assert done(admin_client, page(anomaly, "resolve"), reason="again") == [before]
        late = admin_client.get(page(anomaly, "resolve"), follow=True)
        assert late.redirect_chain == [(page(anomaly), 302)]
        assert [str(message) for message in late.context["messages"]] == [before]
        assert audit() == [("admin", "Resolved. Reason: shopper told. Result: settled.")]

    def test_a_resolution_that_is_too_long(self, admin_client: Client, anomaly: Anomaly) -> None:
        answer = admin_client.post(page(anomaly, "resolve"), {"reason": "x" * 161})
        assert "at most 160 characters" in answer.content.decode()

    @pytest.mark.parametrize(
        ("kind", "detail", "stake", "policy"),
        [
            ("unknown_trade", {"amount_minor": 1990, "currency": "CNY"}, "19.90 CNY", "waits for a person"),
            (
                "unknown_trade",
                {"amount_minor": 1990, "currency": "XYZ"},
                "1,990 minor units of XYZ",
                "waits for a person",
            ),
            ("content_changed", {"first_sha256": "a", "sha256": "b"}, "-", "waits for a person"),
            ("notification_failed", {"error": "x"}, "-", "asked the provider to send it again"),
            (
                "notification_failed",
                {"error": "x", "acknowledged": "yes"},
                "-",
                "acknowledged it; waits for a person",
            ),
            ("refund_failed", {"amount_minor": 500, "message": "no"}, "5.00 CNY", "waits for a person"),
            ("refund_exceeds_paid", {"paid_minor": 0, "refunded_minor": 700}, "7.00 CNY", "waits for a person"),
        ],
    )
    def test_what_is_at_stake(self, kind: str, detail: dict[str, Any], stake: str, policy: str) -> None:
        payment = Payment(currency="CNY")
        anomaly = Anomaly(kind=kind, detail=detail, payment=payment)
        assert (display.at_stake(anomaly), display.policy(anomaly)) == (stake, policy)


class TestBooks:
    @pytest.mark.usefixtures("anomaly")
    def test_the_trial_balance_adds_up_to_zero(self, admin_client: Client, payment: Payment) -> None:
        merchant = payment.attempts.get().merchant
        told = shown(admin_client, "/admin/payments/journalentry/trial-balance/")
        assert "/admin/payments/journalentry/trial-balance/" in shown(
            admin_client, "/admin/payments/journalentry/"
        )
        rows = admin_client.get("/admin/payments/journalentry/trial-balance/").context["rows"]
        assert [row["account"] for row in rows] == ["held", "orders", f"provider:wechat:{merchant}"]
        assert "total CNY" in told
        assert f"?q=provider%3Awechat%3A{merchant}" in told
        answer = admin_client.get("/admin/payments/journalentry/trial-balance.csv")
        assert answer["Content-Disposition"].startswith('attachment; filename="trial-balance-')
        lines = list(csv.reader(answer.content.decode("utf-8-sig").splitlines()))
        assert lines == [
            ["account", "currency", "debit", "credit", "balance"],
            ["held", "CNY", "0.00", "0.05", "-0.05"],
            ["orders", "CNY", "0.00", "19.90", "-19.90"],
            [f"provider:wechat:{merchant}", "CNY", "19.95", "0.00", "19.95"],
            ["total", "CNY", "19.95", "19.95", "0.00"],
        ]

    def test_an_empty_journal(self, admin_client: Client) -> None:
        assert "Nothing has been booked yet" in shown(admin_client, "/admin/payments/journalentry/trial-balance/")

    def test_an_entry_shows_its_lines(self, admin_client: Client, payment: Payment) -> None:
        entry = Observation.objects.get().entries.get()
        told = shown(admin_client, page(entry))
        assert '<td data-side="debit">19.90 CNY</td>' in told
        assert '<td data-side="credit">19.90 CNY</td>' in told
        assert "?q=orders" in told


class TestWhoPaidIsNotShown:
    def test_an_attempts_payer_and_wallet(self, admin_client: Client, open_attempt: OpenAttempt) -> None:
        attempt = open_attempt()
        Attempt.objects.update(
            payer={"openid": "oSECRET"},
            next_action_params={"paySign": "sSECRET"},
            next_action_url="https://uSECRET",
        )
        for address in (page(attempt), page(attempt.payment), "/admin/payments/attempt/"):
            assert "SECRET" not in shown(admin_client, address)

    @pytest.mark.parametrize("name", ["buyer_id", "buyer%5Fid", "buyer_logon_id", "BUYER_ID", "buyer_open_id"])
    def test_alipays_buyer(self, admin_client: Client, payment: Payment, name: str) -> None:
        body = f"trade_no=2026&{name}=2088123456789012&buyer_pay_amount=19.90&sign=abc%2B".encode()
        Notification.objects.update(channel="alipay", body=body)
        told = shown(admin_client, page(Notification.objects.get()))
        assert "2088123" not in told
        assert "=208…" in told
        assert "buyer_pay_amount=19.90" in told
        assert "sign=abc+" in told

    def test_payers_of_json_notifications(self, admin_client: Client, payment: Payment) -> None:
        body = b'{"data": {"object": {"amount": 1990, "billing_details": {"email": "ann@x.y"}, "client_secret": "pi_s"}}}'
        Notification.objects.update(channel="stripe", body=body)
        told = shown(admin_client, page(Notification.objects.get()))
        assert "ann@x.y" not in told
        assert "pi_s" not in told
        assert "&quot;amount&quot;: 1990" in told

    @pytest.mark.parametrize(
        "body", [b"", b"\xff\xfe", b"[" * 60_000, b"12", b"<script>=1", b"a=" + b"x" * 30_000]
    )
    def test_any_body_can_be_looked_at(self, admin_client: Client, payment: Payment, body: bytes) -> None:
        Notification.objects.update(body=body)
        told = shown(admin_client, page(Notification.objects.get()))
        assert "<script>=1" not in told
        assert ("the first 20,000 of" in told) == (len(body) > 20_000)


class TestNames:
    def test_no_minor_unit_and_no_word_of_the_machine(self, admin_client: Client, anomaly: Anomaly) -> None:
        line = JournalLine.objects.filter(account="held").get()
        assert str(line) == f"line {line.pk} of entry {line.entry_id}"
        assert str(anomaly) == f"paid in another amount or currency: {anomaly.reference}"
        assert str(anomaly) in shown(admin_client, page(anomaly))


class TestMoneyInWords:
    @pytest.mark.parametrize(
        ("amount_minor", "currency", "words"),
        [
            (1990, "CNY", "19.90 CNY"),
            (0, "CNY", "0.00 CNY"),
            (-5, "CNY", "-0.05 CNY"),
            (123456789, "CNY", "1,234,567.89 CNY"),
            (1990, "XAU", "1,990 minor units of XAU"),
        ],
    )
    def test_in_the_places_of_its_currency(self, amount_minor: int, currency: str, words: str) -> None:
        assert display.money(amount_minor, currency) == words

    def test_for_a_spreadsheet(self) -> None:
        assert [display.plain(amount, "CNY") for amount in (-199000, 5)] == ["-1990.00", "0.05"]
        assert display.plain(-5, "XAU") == "-5"
