"""Payments in the admin: all to see, nothing to edit, acts that say what came of them."""

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
from payments.errors import (
    ChannelOff,
    NotificationMalformed,
    OutcomeUnknown,
    ProviderRejected,
    ProviderUnavailable,
)
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
from payments.providers.base import FactKind, Trade, TradeStatus
from payments.providers.base import RefundStatus as AtProvider
from payments.webhooks import intake as webhooks
from tests.integration.payments.conftest import (
    Cashier,
    OpenAttempt,
    fold,
    letter,
    order_of,
    paid,
    payment_of,
)
from tests.integration.shop.provider import ScriptedProvider
from tests.payments_settings import ON_FIRE, changed
from tests.threads import at_once

MODELS = (
    *("payment", "attempt", "refund", "observation", "notification", "anomaly", "paymentevent"),
    *("delivery", "journalentry", "journalline"),
)
AWAY = ProviderUnavailable("connection refused")
SILENT = OutcomeUnknown("timed out")
REFUSED = ProviderRejected("NOT_ENOUGH", "balance too small")


class Answering(Cashier):
    """A provider that answers as the test says; each method raises `failure` if that is set."""

    trade: TradeStatus = TradeStatus.PENDING

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


@pytest.fixture
def bank(channels: None, monkeypatch: pytest.MonkeyPatch) -> Answering:
    ours = configured.current()["wechat"].merchant
    made = Answering("wechat", merchant=ours, failing=frozenset({"query", "refund", "query_refund"}))
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
    """Messages that the operator sees after sending the form."""
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
    def test_list_and_detail_of_everything_and_no_way_to_edit(self, admin_client: Client) -> None:
        for model in MODELS:
            rows = list(apps.get_model("payments", model).objects.all())
            said = shown(admin_client, f"/admin/payments/{model}/")
            assert (bool(rows), [row for row in rows if page(row) not in said]) == (True, [])
            assert "?o=" not in said  # a click on a column would sort the whole table
            assert admin_client.get(f"/admin/payments/{model}/add/").status_code == 403
            assert 'name="_save"' not in shown(admin_client, page(rows[0]))
            for more in ("change", "delete"):
                assert admin_client.post(page(rows[0], more), {"post": "yes"}).status_code == 403
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
        said = shown(admin_client, "/admin/payments/refund/")
        assert in_this_order(said, [page(row) for row in newest_first])
        monkeypatch.setattr(searching, "LOOKED_AT", 1)
        said = shown(admin_client, "/admin/payments/refund/", status="requested")
        assert [row for row in newest_first if page(row) in said] == newest_first[:1]

    @pytest.mark.usefixtures("payment", "anomaly")
    def test_no_list_counts_its_table_or_asks_about_each_row(
        self, admin_client: Client, open_attempt: OpenAttempt
    ) -> None:
        filters = "_facets=True&status=pending&state=all&kind=moved&account=orders&channel=wechat&booked=7d"

        def asked(model: str, query: str) -> list[str]:
            with CaptureQueriesContext(connection) as captured:
                admin_client.get(f"/admin/payments/{model}/?{query}")
            return [sql for one in captured if 'AS "source"' not in (sql := one["sql"])]  # but of the navigation

        admin_client.get("/admin/")
        before = {}
        for model in MODELS:
            lists = [
                asked(model, query) for query in ("state=all" * (model == "anomaly"), filters, "q=" + "f" * 32)
            ]
            before[model] = len(lists[0])
            counts = [sql for one in lists for sql in one if "COUNT(" in sql and f'"payments_{model}"' in sql]
            assert (bool(counts), [sql for sql in counts if "LIMIT 10001" not in sql]) == (True, [])
        for charged_minor in (7, 1990, 1990):
            letter(open_attempt(), charged_minor=charged_minor).send()
        assert {model: len(asked(model, "state=all" * (model == "anomaly"))) for model in MODELS} == before

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
            ("observation", [fact.provider_txn_id], [fact]),
            ("observation", [fact.provider_txn_id[:-1], "f" * 32], []),
        ):
            for term in terms:
                assert (model, term, listed(admin_client, model, q=term)) == (model, term, list(found))

    def test_order_and_ledger_are_one_click_away(self, admin_client: Client, payment: Payment) -> None:
        address, said = f"/admin/shop/order/{payment.order_id.hex}/change/", shown(admin_client, page(payment))
        ledger = "/admin/idempotency/ledgerentry/?q="
        for link in (address, f"{ledger}payment:{payment.pk.hex}", f"{ledger}order:{payment.order_id.hex}"):
            assert link in said
        for names in ({}, {"order": "admin:nowhere"}):  # the number stands alone
            with override_settings(IDEMPOTENCY={"SUBJECT_ADMIN": names}):
                said = shown(admin_client, page(payment))
            assert (address in said, payment.order_id.hex in said) == (False, True)


def in_this_order(text: str, wanted: list[str]) -> bool:
    """Whether all of it stands there, each after the one before it."""
    places = [text.index(words) for words in wanted]
    return places == sorted(places)


class TestTimeline:
    def test_everything_in_order_with_links(self, admin_client: Client, payment: Payment, bank: Answering) -> None:
        form = {"number": new_id(), "amount": "5.00", "reason": "came broken", "shown_reason": "sorry"}
        done(admin_client, page(payment, "refund"), **form)
        PaymentEvent.objects.filter(payment=payment).update(handled_at=timezone.now())
        history = shown(admin_client, page(payment)).partition("payments-history")[2]
        wanted = [
            *("WeChat Pay attempt opened", "notification TRANSACTION.SUCCESS", "fact: 19.90 CNY paid"),
            *("debit WeChat Pay (", "event 2: succeeded", "refund of 5.00 CNY asked for"),
            *("came broken. Result: reserved.", "refund of 5.00 CNY sent", "fact: 5.00 CNY refunded"),
            *("event 4: partially refunded", "the money went back."),
        ]
        assert in_this_order(history, wanted)
        rows = [*payment.attempts.all(), *payment.refunds.all(), *payment.events.all()]
        rows += [*Observation.objects.all(), *Notification.objects.all()]
        assert [row for row in rows if page(row) not in history] == []
        assert history.count("/admin/payments/journalentry/") == 2

    def test_who_did_what_is_never_edited(self, admin_client: Client, admin_user: User, anomaly: Anomaly) -> None:
        done(admin_client, page(anomaly, "resolve"), reason="shopper informed")
        (entry,), notification = AuditEntry.objects.all(), Notification.objects.get()
        words = "Resolved. Reason: shopper informed. Result: settled."
        assert words in shown(admin_client, page(anomaly, "history"))
        listed = "/admin/payments/auditentry/"
        for term in ("", admin_user.get_username(), f"anomaly:{anomaly.pk}"):
            said = shown(admin_client, listed, q=term)
            assert (words in said, f'<a href="{page(anomaly)}">anomaly:{anomaly.pk}</a>' in said) == (True, True)
        assert words not in shown(admin_client, listed, q="anomaly:0")
        assert 'name="_save"' not in shown(admin_client, page(entry))
        for more in ("change", "delete"):
            assert admin_client.post(page(entry, more), {"post": "yes"}).status_code == 403
        for row, has_one in ((anomaly, True), (notification, True), (anomaly.payment, False)):
            assert ('class="historylink"' in shown(admin_client, page(row))) is has_one
        assert "No operator has done anything about it." in shown(admin_client, page(notification, "history"))
        assert admin_client.get("/admin/payments/anomaly/0/history/").status_code == 404
        admin_client.force_login(User.objects.create_user("clerk", is_staff=True))
        assert admin_client.get(page(anomaly, "history")).status_code == 403


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
    def test_each_action_needs_its_own(self, client: Client, rows: dict[str, Any], bank: Answering) -> None:
        user = User.objects.create_user("clerk", is_staff=True)
        client.force_login(user)
        views, names = [f"view_{model}" for model in MODELS], [name for _, name, _ in ACTIONS]
        for action, permission, button in ACTIONS:
            row, before = rows[action], len(audit())
            link, act = f'<li><a href="{page(row, action)}">{button}</a></li>', page(row, action)
            given = {"reason": "because", "amount": "1.00", "number": new_id()}
            others = [*views, *(name for name in names if name != permission)]
            user.user_permissions.set(Permission.objects.filter(codename__in=others))
            assert link not in shown(client, page(row))
            assert {client.get(act).status_code, client.post(act, given).status_code} == {403}
            assert f"needs the permission payments.{permission} for this." in client.get(act).text
            user.user_permissions.set(Permission.objects.filter(codename=permission))
            refused = client.get(act)  # who may not see it may not act on it
            assert refused.status_code == 403
            assert f"payments.view_{row._meta.model_name} for this." in refused.text
            assert len(audit()) == before
            user.user_permissions.set(Permission.objects.filter(codename__in=[*views, permission]))
            assert link in shown(client, page(row))
            done(client, act, **given)
            assert {name for name, _ in audit()[before:]} == {"clerk"}

    def test_own_pages_are_for_those_who_may_see_the_rows(self, client: Client) -> None:
        user = User.objects.create_user("clerk", is_staff=True)
        for own in ("payment/find/", "journalentry/trial-balance/"):
            address, codename = f"/admin/payments/{own}", f"view_{own.partition('/')[0]}"
            assert client.get(address).status_code == 302
            client.force_login(user)
            assert client.get(address).status_code == 403
            user.user_permissions.set(Permission.objects.filter(codename=codename))
            assert client.get(address).status_code == 200
            user.user_permissions.clear()
            client.logout()

    def test_a_reason_and_a_row_are_required(self, admin_client: Client, rows: dict[str, Any]) -> None:
        for action, row in rows.items():
            given = {"reason": "   ", "amount": "1.00", "number": new_id()}
            answer = admin_client.post(page(row, action), given)
            assert (answer.status_code, "This field is required." in answer.text) == (200, True)
            nobody = str(new_id()) if isinstance(row.pk, UUID) else 10**9
            assert admin_client.get(page(row, action).replace(str(row.pk), str(nobody))).status_code == 404
        assert (AuditEntry.objects.count(), Refund.objects.filter(anomaly=None).count()) == (0, 0)

    def test_each_action_leaves_atomic_requests(
        self, admin_client: Client, rows: dict[str, Any], bank: Answering, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
        for action, row in rows.items():
            assert done(admin_client, page(row, action), reason="because", amount="1.00", number=new_id())


class TestAsking:
    def test_what_the_provider_says_counts(
        self, admin_client: Client, open_attempt: OpenAttempt, bank: Answering
    ) -> None:
        lines, unheard_of = [], "the provider does not know of it (yet); the outcome stays unknown"
        for before, trade, words, status, paid_minor in (
            ("pending", TradeStatus.PAID, "it was paid", "paid", 1990),
            ("pending", TradeStatus.CLOSED, "it ended unpaid", "pending", 0),
            ("pending", TradeStatus.PENDING, "it is open and not paid", "pending", 0),
            ("uncertain", TradeStatus.NOT_FOUND, unheard_of, "pending", 0),
        ):
            attempt, bank.trade = open_attempt(status=before), trade
            ask, named = page(attempt.payment, "ask"), f"WeChat Pay attempt {attempt.out_trade_no}"
            assert f"is asked about attempt {attempt.out_trade_no}" in shown(admin_client, ask)
            assert ("query", attempt.out_trade_no) not in bank.calls
            assert done(admin_client, ask, reason="shopper called") == [f"{named}: {words}."]
            assert (payment_of(attempt).paid_minor, order_of(attempt).status) == (paid_minor, status)
            lines += [
                ("admin", f"Asks about {named}. Reason: shopper called. Result: begun."),
                ("admin", f"Asked the provider. Reason: shopper called. Result: {named}: {words}."),
            ]
        assert audit() == lines
        assert {method for method, _ in bank.calls} == {"query"}

    def test_failures_become_sentences(
        self, admin_client: Client, open_attempt: OpenAttempt, bank: Answering
    ) -> None:
        attempt = open_attempt()
        for failure, words in (
            (AWAY, "WeChat Pay cannot be reached at the moment; nothing changed."),
            (SILENT, "WeChat Pay gave no answer that can be trusted; nothing changed."),
            (REFUSED, "WeChat Pay refused the question (NOT_ENOUGH: balance too small); nothing changed."),
            (ChannelOff("gone"), "WeChat Pay is not configured here; nothing changed."),
        ):
            bank.failure = failure
            (said,) = done(admin_client, page(attempt.payment, "ask"), reason="late")
            assert (said.endswith(words), words in audit()[-1][1]) == (True, True)
            assert payment_of(attempt).status == "pending"

    def test_open_refunds_keep_their_number(self, admin_client: Client, payment: Payment, bank: Answering) -> None:
        number, bank.failure = new_id(), SILENT
        form = {"number": number, "amount": "5.00", "reason": "came broken"}
        (said,) = done(admin_client, page(payment, "refund"), **form)
        assert "no answer that can be trusted; it stays reserved" in said
        assert "if it does not know it, it is sent now" in shown(admin_client, page(payment, "ask"))
        bank.failure = None
        (said,) = done(admin_client, page(payment, "ask"), reason="go on")
        assert said == f"Refund {number.hex}: the money went back."
        assert {asked for method, asked in bank.calls if method == "refund"} == {number.hex}

    def test_nothing_open_is_nothing_to_ask(self, admin_client: Client, payment: Payment, bank: Answering) -> None:
        assert page(payment, "ask") not in shown(admin_client, page(payment))
        (said,) = done(admin_client, page(payment, "ask"), reason="curious")
        assert said == "Nothing of this payment is open, so there is nothing to ask about."
        assert (bank.calls, audit()) == ([], [])


class TestRefunding:
    def given(self, **changed: Any) -> dict[str, Any]:
        return {"number": new_id(), "amount": "5.00", "reason": "came broken", "shown_reason": "sorry", **changed}

    def test_reserved_sent_and_audited(self, admin_client: Client, payment: Payment, bank: Answering) -> None:
        asked = shown(admin_client, page(payment, "refund"))
        assert "19.90 CNY was paid; 19.90 CNY of it can still be refunded." in asked
        assert 'value="19.90"' in asked
        (number,) = re.findall(r'name="number" value="([0-9a-f-]{36})"', asked)
        (said,) = done(admin_client, page(payment, "refund"), **self.given(number=number))
        row = Refund.objects.values_list("pk", "amount_minor", "reason", "status").get()
        assert row == (UUID(number), 500, "sorry", "succeeded")
        number = UUID(number).hex
        assert said == f"Refund {number}: the money went back."
        about = f"refund {number} of 5.00 CNY. Reason: came broken. Result:"
        assert audit() == [("admin", f"Asked for {about} reserved."), ("admin", f"Sent {about} {said}")]
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
        assert [said for _, said in audit() if said.startswith("Asked for")] == [audit()[0][1]]

    def test_the_number_of_another_refund(self, admin_client: Client, payment: Payment, bank: Answering) -> None:
        form = self.given()
        done(admin_client, page(payment, "refund"), **form)
        (said,) = done(admin_client, page(payment, "refund"), **{**form, "amount": "6.00"})
        assert said == "This form has been used for another refund. Open a new one."
        assert Refund.objects.count() == 1

    def test_amounts_that_are_none(self, admin_client: Client, payment: Payment, bank: Answering) -> None:
        range_of, digits = (
            "more than nothing and not more than was paid",
            "Write the amount in digits, as in 19.90.",
        )
        for amount, words in (
            *((amount, range_of) for amount in ("0", "19.91")),
            *((amount, digits) for amount in ("-1", "5.001", "5,00", "all")),
            ("", "This field is required."),
        ):
            assert words in admin_client.post(page(payment, "refund"), self.given(amount=amount)).text
        assert Refund.objects.count() == 0

    def test_more_than_is_left_by_now(self, admin_client: Client, payment: Payment, bank: Answering) -> None:
        done(admin_client, page(payment, "refund"), **self.given(amount="15.00"))
        (said,) = done(admin_client, page(payment, "refund"), **self.given(amount="5.00"))
        assert said == "Not so much is left to refund any more. Look again."
        assert len(audit()) == 2
        done(admin_client, page(payment, "refund"), **self.given(amount="4.90"))
        assert page(payment, "refund") not in shown(admin_client, page(payment))

    def test_whatever_the_provider_answers_becomes_a_sentence(
        self, admin_client: Client, payment: Payment, bank: Answering
    ) -> None:
        closed, anomaly = "the provider closed it without moving money", "an anomaly is filed"
        for reserved, (answer, status, words) in enumerate(
            (
                (
                    AWAY,
                    "requested",
                    "cannot be reached at the moment; it stays reserved, and the timer tries again.",
                ),
                (SILENT, "uncertain", "the provider gave no answer that can be trusted; it stays reserved"),
                (AtProvider.PROCESSING, "processing", "the provider has taken it and is working on it"),
                (REFUSED, "failed", f"refused it and nothing moved; {anomaly} (NOT_ENOUGH: balance too small)."),
                (AtProvider.FAILED, "failed", f"{anomaly} ({closed})."),
            ),
            start=1,
        ):
            bank.failure, bank.refund_is = (None, answer) if isinstance(answer, AtProvider) else (answer, None)
            given = self.given(amount="1.00")
            (said,) = done(admin_client, page(payment, "refund"), **given)
            assert (words in said, words in audit()[-1][1]) == (True, True)
            assert Refund.objects.get(pk=given["number"]).status == status
            payment.refresh_from_db()
            assert payment.reserved_minor == 100 * min(reserved, 3)


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
    def test_what_failed_fails_again_or_is_applied_now(
        self, admin_client: Client, broken: Notification, settings: Any
    ) -> None:
        works, replay = settings.PAYMENTS, page(broken, "replay")
        assert set(actions.VERDICT_IS) == set(Notification.Verdict)
        settings.PAYMENTS = changed(ORDER=ON_FIRE)
        failed = "It failed, and nothing of it is applied: RuntimeError: the shop is on fire"
        assert done(admin_client, replay, reason="try") == [failed]
        assert Observation.objects.count() == 0
        settings.PAYMENTS = works
        assert "nothing of it is applied" in shown(admin_client, replay)
        (said,) = done(admin_client, replay, reason="repaired")
        assert said == "Processed again: its effect is applied."
        broken.refresh_from_db()
        assert (broken.verdict, broken.attempts) == ("applied", 3)
        assert Anomaly.objects.get().resolution == "processed later"
        assert audit()[2:] == [
            ("admin", "Processes it again. Reason: repaired. Result: begun."),
            ("admin", f"Processed again. Reason: repaired. Result: {said}"),
        ]

    def test_what_cannot_be_processed_changes_nothing(
        self, admin_client: Client, broken: Notification, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Unreading(ScriptedProvider):
            def read_notification(self, **given: Any) -> Any:
                raise NotificationMalformed("no resource in it")

        with monkeypatch.context() as patched:
            patched.setattr("payments.attempts.calling.provider", {"wechat": Unreading("wechat")}.__getitem__)
            unreadable = done(admin_client, page(broken, "replay"), reason="try")
        assert unreadable == ["It cannot be read (no resource in it); nothing changed."]
        Notification.objects.update(headers={**broken.headers, "Wechatpay-Nonce": "another"})
        (said,) = done(admin_client, page(broken, "replay"), reason="try")
        assert said.startswith("Our keys do not verify it any more (")
        assert said.endswith("nothing changed.")
        settings.PAYMENTS = changed(PROVIDERS={})
        configured.forget()
        gone = done(admin_client, page(broken, "replay"), reason="try")
        assert gone == ["The account WeChat Pay is not configured here; nothing changed."]

    def test_a_database_that_gives_up(self, admin_client: Client, payment: Payment) -> None:
        row, other = Notification.objects.get(), connection.copy()
        try:
            other.set_autocommit(False)
            with other.cursor() as cursor, connection.cursor() as own:
                cursor.execute("SELECT 1 FROM payments_payment FOR UPDATE")
                own.execute("SET lock_timeout = '50ms'")
                (said,) = done(admin_client, page(row, "replay"), reason="try")
                own.execute("RESET lock_timeout")
            other.rollback()
        finally:
            other.close()
        assert said == GAVE_UP

    def test_a_database_that_takes_no_writes(self, admin_client: Client, payment: Payment) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = on")
        (said,) = done(admin_client, page(Notification.objects.get(), "replay"), reason="try")
        assert said == GAVE_UP
        assert audit() == [("admin", f"Processed again. Reason: try. Result: {said}")]


def ending_after(function: Callable[..., Any]) -> Callable[..., None]:
    """Have the process end as soon as the function is done."""

    def and_ends(*given: Any) -> None:
        function(*given)
        raise KeyboardInterrupt

    return and_ends


class TestAProcessThatEndsInBetween:
    def test_who_asked_for_a_committed_effect_and_why_is_there(
        self,
        admin_client: Client,
        open_attempt: OpenAttempt,
        broken: Notification,
        bank: Answering,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        bank.trade = TradeStatus.PAID
        failed, asked = Attempt.objects.get(), open_attempt()
        ask = f"Asks about WeChat Pay attempt {asked.out_trade_no}"
        for module, name, row, act, begun in (
            (webhooks, "replay", broken, "replay", "Processes it again"),
            (closing, "query_attempt", asked.payment, "ask", ask),
        ):
            monkeypatch.setattr(module, name, ending_after(getattr(module, name)))
            with pytest.raises(KeyboardInterrupt):
                admin_client.post(page(row, act), {"reason": "repaired"})
            assert AuditEntry.objects.latest("pk").subject == f"{row._meta.model_name}:{row.pk}"
            assert audit()[-1] == ("admin", f"{begun}. Reason: repaired. Result: begun.")
        assert [payment_of(one).paid_minor for one in (failed, asked)] == [1990, 1990]
        assert AuditEntry.objects.count() == 2

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
        known = {"kind": Anomaly.Kind.UNKNOWN_TRADE, "channel": "wechat"}
        made = [Anomaly.objects.create(reference=f"m/{number}", **known) for number in range(4)]
        Anomaly.objects.filter(pk__in=[made[0].pk, made[2].pk]).update(resolved_at=timezone.now(), resolution="ok")
        found = partial(listed, admin_client, "anomaly")
        assert found() == found(state="all")[:2] == [made[1], made[3]]
        assert {*found(state="settled")} == {made[0], made[2]}
        assert found(kind="paid_twice") == []

    def test_the_list_shows_money_policy_age_and_payment(self, admin_client: Client, anomaly: Anomaly) -> None:
        Anomaly.objects.update(created_at=timezone.now() - timedelta(days=3))
        said = shown(admin_client, "/admin/payments/anomaly/").replace("\xa0", " ")
        of_payment = f"/payment/{anomaly.payment_id}/change/"
        for words in ("0.05 CNY", "gives 0.05 CNY back: requested", "3 days", of_payment):
            assert words in said
        detail = shown(admin_client, page(anomaly))
        for words in (
            page(Refund.objects.get()),
            "It is refunded. See that the refund ends",
            '<th scope="row">amount asked for</th><td>19.90 CNY</td>',
            f"paid in another amount or currency: {anomaly.reference}",
        ):
            assert words in detail
        assert "_minor" not in detail
        said = shown(admin_client, page(anomaly.payment))
        for words in (
            "0.05 CNY at stake; goes back by policy",
            "policy refund of 0.05 CNY asked for",
            "NOT CREDITED",
        ):
            assert words in said

    def test_each_reported_amount_keeps_its_currency(self, anomaly: Anomaly) -> None:
        ours = Observation.objects.get().currency
        anomaly.detail = {"amount_minor": 5, "currency": "USD", "expected_minor": 1990, "first_minor": 5}
        said = [words for _, words in display.details(anomaly)]
        assert said == ["0.05 USD", "USD", "19.90 CNY", f"0.05 {ours}"]
        anomaly.detail, anomaly.payment = {"amount_minor": 500, "message": "no"}, None
        assert display.details(anomaly)[0] == ("amount", "500 minor units of an unknown currency")

    def test_resolving_takes_it_off_the_list_for_good(self, admin_client: Client, anomaly: Anomaly) -> None:
        asked = shown(admin_client, page(anomaly, "resolve"))
        assert "The policy gives 0.05 CNY back: requested. It continues, resolved or not." in asked
        assert done(admin_client, page(anomaly, "resolve"), reason="shopper informed") == [
            "The anomaly is resolved."
        ]
        anomaly.refresh_from_db()
        assert (anomaly.resolution, anomaly.resolved_at is None) == ("shopper informed", False)
        assert page(anomaly, "resolve") not in shown(admin_client, page(anomaly))
        before = f"It has been resolved before, {utc(anomaly.resolved_at)} UTC: shopper informed"
        assert done(admin_client, page(anomaly, "resolve"), reason="again") == [before]
        late = admin_client.get(page(anomaly, "resolve"), follow=True)
        assert late.redirect_chain == [(page(anomaly), 302)]
        assert [str(message) for message in late.context["messages"]] == [before]
        assert audit() == [("admin", "Resolved. Reason: shopper informed. Result: settled.")]

    def test_what_is_at_stake(self) -> None:
        person, money = "waits for a person", {"amount_minor": 1990}
        for kind, detail, stake, policy in (
            ("unknown_trade", {**money, "currency": "CNY"}, "19.90 CNY", person),
            ("unknown_trade", {**money, "currency": "XYZ"}, "1,990 minor units of XYZ", person),
            ("content_changed", {"first_sha256": "a", "sha256": "b"}, "-", person),
            ("notification_failed", {"error": "x"}, "-", "asked the provider to send it again"),
            ("notification_failed", {"error": "x", "acknowledged": "yes"}, "-", f"acknowledged it; {person}"),
            ("refund_failed", {"amount_minor": 500, "message": "no"}, "5.00 CNY", person),
            ("refund_exceeds_paid", {"paid_minor": 0, "refunded_minor": 700}, "7.00 CNY", person),
        ):
            anomaly = Anomaly(kind=kind, detail=detail, payment=Payment(currency="CNY"))
            assert (display.at_stake(anomaly), display.policy(anomaly)) == (stake, policy)


class TestBooks:
    def test_the_trial_balance_adds_up_to_zero(self, admin_client: Client, open_attempt: OpenAttempt) -> None:
        address = "/admin/payments/journalentry/trial-balance/"
        assert "Nothing has been booked yet" in shown(admin_client, address)
        fold(paid(open_attempt()), paid(open_attempt(), amount_minor=5))
        provider = f"provider:wechat:{Attempt.objects.earliest('pk').merchant}"
        answer = admin_client.get(address)
        assert [row["account"] for row in answer.context["rows"]] == ["held", "orders", provider]
        for words in ("total CNY", f"?q={provider.replace(':', '%3A')}"):
            assert words in answer.text
        assert address in shown(admin_client, "/admin/payments/journalentry/")


class TestWhoPaidIsNotShown:
    def test_an_attempts_payer_and_wallet(self, admin_client: Client, open_attempt: OpenAttempt) -> None:
        attempt, secret = open_attempt(), {"paySign": "sSECRET"}
        Attempt.objects.update(payer=secret, next_action_params=secret, next_action_url="https://uSECRET")
        for address in (page(attempt), page(attempt.payment), "/admin/payments/attempt/"):
            assert "SECRET" not in shown(admin_client, address)

    def test_alipays_buyer(self, admin_client: Client, payment: Payment) -> None:
        names = ("buyer_id", "buyer%5Fid", "buyer_logon_id", "BUYER_ID", "buyer_open_id")
        buyers = "&".join(f"{name}=2088123456789012" for name in names)
        body = f"trade_no=2026&{buyers}&buyer_pay_amount=19.90&sign=abc%2B".encode()
        Notification.objects.update(channel="alipay", body=body)
        said = shown(admin_client, page(Notification.objects.get()))
        assert "2088123" not in said
        for words in ("=208…", "buyer_pay_amount=19.90", "sign=abc+"):
            assert words in said

    def test_payers_of_json_notifications(self, admin_client: Client, payment: Payment) -> None:
        body = b'{"data": {"object": {"amount": 1990, "billing_details": {"email": "ann@x.y"}, "client_secret": "pi_s"}}}'
        Notification.objects.update(channel="stripe", body=body)
        said = shown(admin_client, page(Notification.objects.get()))
        assert "ann@x.y" not in said
        assert "pi_s" not in said
        assert "&quot;amount&quot;: 1990" in said

    @pytest.mark.usefixtures("collector_off")
    def test_any_body_can_be_looked_at(self, admin_client: Client, payment: Payment) -> None:
        for body in (b"", b"\xff\xfe", b"[" * 60_000, b"12", b"<script>=1", b"a=" + b"x" * 30_000):
            Notification.objects.update(body=body)
            said = shown(admin_client, page(Notification.objects.get()))
            assert "<script>=1" not in said
            assert ("The first 20,000 of" in said) == (len(body) > 20_000)


def test_money_in_the_places_of_its_currency() -> None:
    for amount_minor, currency, words in (
        (-5, "CNY", "-0.05 CNY"),
        (123456789, "CNY", "1,234,567.89 CNY"),
        (1990, "SEK", "19.90 SEK"),
        (1990, "JPY", "1,990 JPY"),
        (12345, "KWD", "12.345 KWD"),
        (1990, "XAU", "1,990 minor units of XAU"),
    ):
        assert display.money(amount_minor, currency) == words
    for_a_spreadsheet = [display.plain(*money) for money in ((-199000, "CNY"), (5, "CNY"), (-5, "XAU"))]
    assert for_a_spreadsheet == ["-1990.00", "0.05", "-5"]
