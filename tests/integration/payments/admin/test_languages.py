"""The admin in Chinese: no page, act or export is left in English, but data and names."""

import csv
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.utils import timezone

from idempotency.ids import new_id
from payments.channels import configured
from payments.errors import NotificationMalformed
from payments.models import (
    Anomaly,
    Attempt,
    AuditEntry,
    BillComparison,
    Delivery,
    Difference,
    JournalEntry,
    JournalLine,
    Notification,
    Observation,
    Payment,
    PaymentEvent,
    ProviderCall,
    Refund,
)
from payments.money import EXPONENTS
from payments.operations import worklist
from payments.providers.base import RefundStatus as AtProvider
from payments.providers.base import TradeStatus
from payments.settlement import backoff
from tests.integration.payments.admin.test_payment_admin import (
    AWAY,
    REFUSED,
    SILENT,
    Answering,
    bank,
    broken,
    page,
    payment,
)
from tests.integration.payments.conftest import (
    OpenAttempt,
    fold,
    letter,
    order_of,
    paid,
    refund_asked,
    refunded,
)
from tests.integration.shop.provider import ScriptedProvider
from tests.languages import latin_in
from tests.payments_settings import ON_FIRE, changed

__all__ = ["bank", "broken", "payment"]

MODELS = [model for model in apps.get_app_config("payments").get_models() if admin.site.is_registered(model)]
OLD = backoff.IN_DOUBT + timedelta(seconds=1)

# names of people and things, of methods, of types and codes
DATA = [
    *("clerk", "ann", "Mug", "books", "native", "page"),
    *("webhook-id", "Webhook-id", "SHA-256", "paypal"),
    *("payment.paid", "payment.refunded", "payment.partially_refunded", "payment.closed", "anomaly.filed"),
    *("TRANSACTION.SUCCESS", "REFUND.SUCCESS", "TRADE_SUCCESS", "NOT_ENOUGH", "ABNORMAL"),
    *("RuntimeError: the shop is on fire", "OutcomeUnknown: timed out", "ProviderRejected", "balance too small"),
    *("ProviderUnavailable", "connection refused", "OutcomeUnknown"),
    *("no resource in it", "n-less", "n-paid", "n-broken", "m/4200", "elsewhere", "PayPal"),
    *("XAU", *EXPONENTS),
]
# our numbers, accounts of the journal, and subjects of audit entries
CODE = re.compile(
    r"(?<![A-Za-z])[r\d]*[0-9a-f]{20,64}(?![0-9A-Za-z])|[0-9a-f]{8}…[0-9a-f]{6}|\b[0-9A-F]{6}\b"
    r"|\bprovider:(?:\w+:\d+|CHANNEL:MERCHANT)|(?<=[\">])(?:orders|held)(?=[\"<])|凭证 \d+：(?:orders|held)\b"
    r"|orders、held、|\b(?:payment|refund|anomaly|difference|notification|delivery):[0-9a-f…-]+"
)


@pytest.fixture
def operator(transactional_db: None) -> Client:
    client = Client(headers={"Accept-Language": "zh-CN"})
    client.force_login(User.objects.create_superuser("clerk"))
    return client


def words_left(shown: str) -> list[str]:
    """List the texts of a page in Latin letters, but for data, names and codes."""
    _, _, desk = shown.partition('<section class="payments-desk">')  # the start page lists other apps too
    return latin_in(CODE.sub(" ", desk.partition("</section>")[0] or shown), DATA)


def left(answer: Any) -> list[str]:
    """List the same of an answer, each with the page's address."""
    assert answer.status_code == 200, answer.request["PATH_INFO"]
    return [f"{answer.request['PATH_INFO']}: {text}" for text in words_left(answer.text)]


def done(client: Client, address: str, **given: Any) -> str:
    """Send an act's form; return what the operator reads then."""
    answer = client.post(address, given, follow=True)
    assert answer.redirect_chain, words_left(answer.text)
    assert left(answer) == []
    return " ".join(str(message) for message in answer.context["messages"])


def in_chinese(messages: str) -> bool:
    return bool(messages) and words_left(f"<p>{messages}</p>") == []


@pytest.fixture
def everything(payment: Payment, open_attempt: OpenAttempt, mug: Any) -> None:
    """Each model with a row in each of its states."""
    attempt, twice = payment.attempts.get(), open_attempt()
    for one, charged in ((twice, None), (open_attempt("alipay", order_of(twice)), None), (open_attempt(), 5)):
        letter(one, charged_minor=charged).send()
    make_attempts(open_attempt)
    make_refunds(payment)
    make_anomalies(payment)
    make_notifications(attempt)
    make_deliveries(payment)
    make_differences(payment)
    counted = JournalEntry(observation=Observation.objects.earliest("pk"), kind="counted")
    with transaction.atomic():
        counted.save()
        for amount_minor, account in ((5, "held"), (-5, "orders")):
            JournalLine.objects.create(entry=counted, account=account, amount_minor=amount_minor, currency="CNY")
    PaymentEvent.objects.filter(payment=payment).update(handled_at=timezone.now())
    PaymentEvent.objects.exclude(payment=payment).update(attempts=3)
    AuditEntry.objects.create(
        subject=f"payment:{payment.pk}", operator="clerk", operator_id="1", message="已核对。"
    )


def make_attempts(open_attempt: OpenAttempt) -> None:
    now = timezone.now()
    for status in ("created", "pending", "closed", "failed", "uncertain"):
        Attempt.objects.filter(pk=open_attempt(status=status).pk).update(message="NOT_ENOUGH", next_query_at=now)
    given_up = open_attempt(status="uncertain")
    for method, answer in (("create", "opened"), ("query", "not_found"), ("close", "closed")):
        ProviderCall.objects.create(attempt=given_up, method=method, answer=answer, failed=False, milliseconds=7)
    ProviderCall.objects.create(
        attempt=given_up, method="query_refund", answer="OutcomeUnknown: timed out", failed=True, milliseconds=7
    )


def make_refunds(payment: Payment) -> None:
    for status in ("requested", "processing", "uncertain", "failed", "succeeded"):
        message = "the provider closed it without moving money" if status == "failed" else ""
        made = refund_asked(payment.pk, 100)
        Refund.objects.filter(pk=made.pk).update(status=status, message=message, submitted_at=timezone.now())


def make_anomalies(payment: Payment) -> None:
    known: dict[str, dict[str, Any]] = {
        "unknown_trade": {"out_trade_no": "4200", "amount_minor": 500, "currency": "XAU"},
        "merchant_mismatch": {"amount_minor": 500, "expected_minor": 1990, "currency": "CNY"},
        "paid_after_close": {"amount_minor": 500, "currency": "CNY", "approval": "needed"},
        "content_changed": {"first_sha256": "0" * 64, "sha256": "1" * 64},
        "refund_exceeds_paid": {"paid_minor": 0, "refunded_minor": 700},
        "refund_failed": {"amount_minor": 500, "message": "the provider closed it without moving money"},
        "disputed": {
            **{"amount_minor": 500, "currency": "CNY", "taken_minor": 500, "returned_minor": 0, "status": "open"},
            **{"charged_as": "4200", "reason": "10.4", "claimed_minor": 500, "merchant": "m"},
            **{"respond_by": timezone.now().isoformat(), "stated_at": timezone.now().isoformat()},
        },
        "notification_failed": {"error": "RuntimeError: the shop is on fire", "acknowledged": "yes"},
    }
    for kind, detail in known.items():
        made = {"kind": kind, "channel": "wechat", "payment": payment, "detail": detail}
        Anomaly.objects.create(reference="m/4200", **made)
    Anomaly.objects.create(reference="m/4201", resolution="已核对", resolved_at=timezone.now(), **made)


def make_notifications(attempt: Attempt) -> None:
    for number, verdict in enumerate(Notification.Verdict.values, start=7001):
        Notification.objects.create(
            **{"channel": "wechat", "notification_id": str(number), "digest": "0" * 64},
            **{"event_type": "TRANSACTION.SUCCESS", "verdict": verdict, "processed_at": timezone.now()},
            **{"body": b"a=1", "out_trade_no": attempt.out_trade_no},
        )


def make_deliveries(payment: Payment) -> None:
    at = timezone.now().isoformat()
    log = [{"at": at}, {"at": at, "answer": "answered 500"}, {"at": at, "answer": "connection refused"}]
    for number, status in enumerate(Delivery.Status.values, start=100):
        Delivery.objects.create(
            **{"endpoint": "books", "type": "payment.paid", "payment": payment, "sequence": number, "data": {}},
            **{"status": status, "log": log},
        )


def make_differences(payment: Payment) -> None:
    day = timezone.now().date()
    account = {"channel": "wechat", "merchant": "1900000001", "currency": "CNY"}
    account |= {"theirs_minor": 1, "ours_minor": 2}
    BillComparison.objects.create(day=day, lines=1, **account)
    with_lines = BillComparison.objects.create(day=day - timedelta(days=1), lines=3, **account)
    kinds = {"missing_here": (7, None), "missing_there": (None, 7), "amount": (7, 8)}
    for number, (kind, (theirs, ours)) in enumerate(kinds.items()):
        for moved in ("paid", "refunded", "taken", "returned"):
            Difference.objects.create(
                **{"comparison": with_lines, "kind": kind, "moved": moved, "provider_txn_id": f"4200{number}"},
                **{"out_trade_no": "x", "theirs_minor": theirs, "ours_minor": ours, "currency": "CNY"},
                payment=payment,
            )
    Difference.objects.filter(kind="amount").update(resolved_at=timezone.now(), resolution="it agrees now")


@pytest.mark.usefixtures("everything")
def test_every_list_filter_and_row(operator: Client, payment: Payment, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {text for model in MODELS for text in pages_of(operator, model)} == set()
    pages = ["/admin/", "/admin/payments/", "/admin/payments/journalentry/trial-balance/"]
    pages += [f"/admin/payments/payment/find/?q={term}" for term in ("", "19.90", "4" * 9)]
    pages += [page(row, "history") for row in (payment, Notification.objects.earliest("pk"))]
    found = [text for address in pages for text in left(operator.get(address))]
    monkeypatch.setattr(worklist, "SHOWN", 2)
    assert sorted({*found, *left(operator.get("/admin/"))}) == []
    every_export(operator)


def pages_of(operator: Client, model: Any) -> list[str]:
    """List what is left in English in a model's list, by each filter, and on each state's page."""
    listed = f"/admin/payments/{model._meta.model_name}/"
    answer = operator.get(listed)
    found = left(answer)
    choices = [[*spec.choices(answer.context["cl"])] for spec in answer.context["cl"].filter_specs]
    # each choice's words stand on each of these pages; the first may hide what is settled, the last shows
    filtered = ["&".join(of_one[at]["query_string"].lstrip("?") for of_one in choices) for at in (1, -1)]
    for query in (*filtered, "q=nothing"):
        found += [text for text in left(operator.get(f"{listed}?{query}")) if not text.endswith(": nothing")]
    rows = {state_of(row): row for row in model._default_manager.order_by("-pk")}
    assert rows
    return found + [text for row in rows.values() for text in left(operator.get(page(row)))]


def state_of(row: Any) -> tuple[Any, ...]:
    """Return what decides on the words of its page; of a payment, itself."""
    if isinstance(row, Payment):
        return (row.pk,)
    known = [getattr(row, name, "") for name in ("status", "verdict", "kind", "moved")]
    dated = [bool(getattr(row, name, "")) for name in ("resolved_at", "handled_at", "next_query_at", "anomaly_id")]
    return (type(row), *known, *dated)


def test_an_empty_desk_and_journal(operator: Client) -> None:
    pages = ["/admin/", *(f"/admin/payments/{model._meta.model_name}/" for model in MODELS)]
    pages.append("/admin/payments/journalentry/trial-balance/")
    assert [text for address in pages for text in left(operator.get(address))] == []


def every_export(operator: Client) -> None:
    comparison = BillComparison.objects.earliest("day")
    for address in ("difference/csv/", f"difference/csv/?comparison={comparison.pk}"):
        text = b"".join(operator.get(f"/admin/payments/{address}")).decode()
        assert text.startswith("\ufeff"), "without it a spreadsheet takes the headings for another encoding"
        header, *rows = csv.reader(text[1:].splitlines())
        assert rows
        assert latin_in(" ".join(header), ["SHA"]) == []
    for row in Payment.objects.all():
        exported = operator.get(f"/admin/payments/payment/{row.pk}/case.json").json()
        texts = [*exported["story"], *(f"{one['what']} {one['remark']}" for one in exported["history"])]
        texts += [value for sums in exported["sums"] for value in sums.values()]
        assert [text for text in texts if words_left(f"<p>{text}</p>")] == []


@pytest.mark.usefixtures("everything")
def test_the_form_of_each_act_and_its_errors(operator: Client, payment: Payment, settings: Any) -> None:
    """On every row on which it can be done: what it says depends on the row."""
    found = []
    for row in [*Anomaly.objects.filter(resolved_at=None), *Difference.objects.all()[:1]]:
        found += left(operator.get(page(row, "resolve"), follow=True))
    for row in Payment.objects.all():
        found += left(operator.get(page(row, "ask"), follow=True))
    for row in [*Notification.objects.all(), *Delivery.objects.all()]:
        found += left(operator.get(page(row, "replay")))
    held = Anomaly.objects.get(kind="paid_after_close", resolved_at=None)
    for address in (page(held, "approve"), page(held, "decline"), page(payment, "refund"), page(payment, "ask")):
        found += left(operator.get(address)) + left(operator.post(address, {}))
    for amount in ("0", "19.91", "all"):
        found += left(operator.post(page(payment, "refund"), {"amount": amount, "reason": "x"}))
    found += left(operator.post(page(held, "decline"), {"reason": "x" * 161}))
    settings.PAYMENTS = changed(PROVIDERS={})
    configured.forget()
    assert sorted({*found, *forms_of_an_outcome(operator)}) == []


def forms_of_an_outcome(operator: Client) -> list[str]:
    """List what is left in English where nobody can be asked any more."""
    found = []
    still_open = Refund.objects.filter(status__in=("requested", "processing", "uncertain"))
    for row in {state_of(row): row for row in [*Attempt.objects.all(), *still_open]}.values():
        address = page(Payment(pk=row.payment_id), f"tell/{row.pk}")
        found += left(operator.get(address, follow=True))
    for given in ({}, {"moved": "yes"}, {"moved": "no", "number": "1"}, {"moved": "yes", "number": "一"}):
        found += left(operator.post(address, given))
    return found


class TestActs:
    """What is done, what is refused, and the lines that it leaves."""

    @pytest.fixture(autouse=True)
    def lines(self, operator: Client) -> Iterator[None]:
        yield
        rows = (*AuditEntry.objects.all()[:1], *Payment.objects.all(), *Anomaly.objects.all())
        addresses = ["/admin/payments/auditentry/", *(page(row) for row in rows)]
        assert [text for address in addresses for text in left(operator.get(address))] == []

    def test_asking_and_refunding(
        self, operator: Client, payment: Payment, open_attempt: OpenAttempt, bank: Answering
    ) -> None:
        def refund(amount: str, **more: Any) -> None:
            given = {"number": new_id(), "amount": amount, "reason": "7。", "shown_reason": "抱歉", **more}
            assert in_chinese(done(operator, page(payment, "refund"), **given))

        assert left(operator.get(page(payment, "ask"))) == []
        assert in_chinese(done(operator, page(payment, "ask"), reason="7"))  # there is nothing to ask
        for trade in (TradeStatus.PAID, TradeStatus.CLOSED, TradeStatus.PENDING):
            attempt, bank.trade = open_attempt(), trade
            assert in_chinese(done(operator, page(attempt.payment, "ask"), reason="7"))
        for failure in (AWAY, SILENT, REFUSED):
            bank.failure = failure
            refund("1.00")
            for one in (attempt.payment, payment):
                assert in_chinese(done(operator, page(one, "ask"), reason="7"))
        bank.failure = None
        for became in AtProvider:
            bank.refund_is = became
            refund("1.00")
        refund("19.00")  # more than is left
        refund("2.00", number=Refund.objects.latest("created_at").pk)

    def test_deciding(self, operator: Client, open_attempt: OpenAttempt, settings: Any) -> None:
        settings.PAYMENTS = changed(REFUNDS={"APPROVE_ABOVE": {"CNY": 1}})
        for act in ("approve", "decline"):
            fold(paid(open_attempt(), amount_minor=2001))
            row = Anomaly.objects.latest("pk")
            assert left(operator.get(page(row))) == left(operator.get("/admin/")) == []
            assert in_chinese(done(operator, page(row, "resolve"), reason="7"))
            assert in_chinese(done(operator, page(row, act), reason="7"))
            assert in_chinese(done(operator, page(row, act), reason="7"))
        for refund in Refund.objects.all():
            fold(refunded(refund.attempt, refund.amount_minor, refund.out_refund_no), source="refund")

    def test_processing_again(
        self, operator: Client, broken: Notification, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        row, works = broken, settings.PAYMENTS
        settings.PAYMENTS = changed(ORDER=ON_FIRE)
        assert in_chinese(done(operator, page(row, "replay"), reason="7"))
        settings.PAYMENTS = changed(ORDER=works["ORDER"], PROVIDERS={})
        configured.forget()
        assert in_chinese(done(operator, page(row, "replay"), reason="7"))
        settings.PAYMENTS = works
        configured.forget()
        for _ in range(2):  # the first resolves the anomaly that was filed
            assert in_chinese(done(operator, page(row, "replay"), reason="7"))
        assert Anomaly.objects.get().resolution == "processed later"

        class Unreading(ScriptedProvider):
            def read_notification(self, **given: Any) -> Any:
                raise NotificationMalformed("no resource in it")

        monkeypatch.setattr("payments.attempts.calling.provider", {"wechat": Unreading("wechat")}.__getitem__)
        assert in_chinese(done(operator, page(row, "replay"), reason="7"))

    def test_sending_again(self, operator: Client, payment: Payment, settings: Any) -> None:
        row = Delivery.objects.latest("pk")
        assert in_chinese(done(operator, page(row, "replay"), reason="7"))
        Delivery.objects.filter(pk=row.pk).update(status="sending")
        assert in_chinese(done(operator, page(row, "replay"), reason="7"))
        settings.PAYMENTS = changed(WEBHOOKS={})
        assert in_chinese(done(operator, page(row, "replay"), reason="7"))
