"""The operator's desk: what needs a person, oldest first, and the last two days of each channel."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin import site
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.template import RequestContext, Template
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from idempotency.ids import new_id
from idempotency.models import LedgerEntry
from payments.channels import configured
from payments.models import Anomaly, Attempt, BillComparison, Difference, Observation, Payment, PaymentEvent
from payments.operations import worklist
from payments.providers.base import FactKind
from payments.reconciliation.bills import next_comparison
from tests.integration.payments.conftest import (
    OpenAttempt,
    fold,
    gone_back_whole,
    letter,
    number_of,
    paid,
    payment_of,
    recorded_by_hand,
    refund_asked,
    refunded,
)
from tests.payments_settings import changed


@pytest.fixture
def payment(open_attempt: OpenAttempt) -> Payment:
    """Paid, 19.90 CNY; its event is handled."""
    attempt = open_attempt()
    letter(attempt, notification_id="n-paid").send()
    PaymentEvent.objects.update(handled_at=timezone.now())
    return payment_of(attempt)


def filed(payment: Payment, kind: str, age: timedelta = timedelta(0)) -> Anomaly:
    detail = {"amount_minor": 500, "currency": "CNY"}
    made = Anomaly.objects.create(kind=kind, channel="wechat", reference=kind, payment=payment, detail=detail)
    Anomaly.objects.filter(pk=made.pk).update(created_at=timezone.now() - age)
    return made


def compared(day: Any) -> BillComparison:
    return BillComparison.objects.create(
        channel="wechat", merchant="1900000001", day=day, lines=1, currency="CNY", theirs_minor=1, ours_minor=1
    )


def differing(payment: Payment) -> Difference:
    return Difference.objects.create(
        comparison=compared(timezone.now().date()),
        **{"kind": "missing_here", "moved": "paid", "provider_txn_id": "4200", "out_trade_no": "x"},
        **{"theirs_minor": 700, "currency": "CNY", "payment": payment},
    )


def queue(client: Client) -> list[str]:
    """Lines of the queue as a person reads them, with the address of each next step."""
    body = client.get("/admin/").content.decode().partition("payments-queue")[2].partition("</tbody>")[0]
    lines = re.findall(r"<tr>(<td>.*?)</tr>", body, re.DOTALL)
    kept = [re.sub(r'<a class="payments-next" href="([^"]*)">', r" \1 ", line) for line in lines]
    return [" ".join(re.sub(r"<[^>]*>", " ", line).split()) for line in kept]


def test_each_kind_of_work_has_money_customer_order_and_one_next_step(
    admin_client: Client, payment: Payment
) -> None:
    for kind, words, action in (
        ("unknown_trade", "a fact about a number that is not ours", "Find out and resolve"),
        ("paid_twice", "It is being refunded; see that the refund ends.", "See its refund"),
        ("refund_failed", "a refund was refused", "Find out and resolve"),
        ("notification_failed", "could not be processed", "Process it again"),
        ("difference", "in the bill, unknown to us", "Find out and resolve"),
    ):
        is_one = kind == "difference"
        row = differing(payment) if is_one else filed(payment, kind)
        [line] = queue(admin_client)
        for part in (words, f"{7 if is_one else 5}.00 CNY ann {payment.order_id.hex[-6:].upper()}", action):
            assert part in line
        assert admin_client.get(re.findall(r"/admin/\S+", line)[-1]).status_code == 200
        type(row).objects.update(resolved_at=timezone.now(), resolution="seen")


def test_a_notification_of_any_id_is_reached(admin_client: Client, open_attempt: OpenAttempt) -> None:
    """Its provider chooses the id, and an address takes `&`, `#` and `+` for its own."""
    given, attempt = "a&b#c+d", open_attempt()
    letter(attempt, notification_id=given).send()
    Anomaly.objects.create(
        kind="notification_failed", channel="wechat", reference=given, payment=payment_of(attempt)
    )
    action = next(line for line in queue(admin_client) if "Process it again" in line)
    found = admin_client.get(unescape(re.findall(r"/admin/\S+", action)[-1])).context["cl"].result_list
    assert [row.notification_id for row in found] == [given]


def test_what_is_uncertain_says_what_will_happen(admin_client: Client, open_attempt: OpenAttempt) -> None:
    asked, given_up = open_attempt(status="uncertain"), open_attempt(status="uncertain")
    Attempt.objects.filter(pk=given_up.pk).update(next_query_at=None)
    Attempt.objects.filter(pk=asked.pk).update(next_query_at=timezone.now().replace(hour=7, minute=8, second=9))
    first, second = queue(admin_client)
    assert "WeChat Pay is asked again at 07:08:09 UTC; nothing moves twice. 19.90 CNY ann" in first
    assert f"/admin/payments/payment/{asked.payment_id}/ask/ Ask now" in first
    assert "is not asked again by itself" in second
    assert f"/admin/payments/payment/{given_up.payment_id}/change/ Record the outcome" in second


def test_a_refund_at_a_former_account_leads_to_the_case_file(
    admin_client: Client, payment: Payment, settings: Any
) -> None:
    refund_asked(payment.pk, 500)
    providers = settings.PAYMENTS["PROVIDERS"]
    other = {**providers["wechat"], "MCH_ID": "1900000009"}
    for today, waiting in (({"alipay": providers["alipay"]}, 1), ({"wechat": other}, 1), (providers, 0)):
        settings.PAYMENTS = changed(PROVIDERS=today)
        configured.forget()
        lines = queue(admin_client)
        assert len(lines) == waiting
        for line in lines:
            assert "WeChat Pay is no longer configured here for its merchant: nobody can be asked." in line
            assert f"/admin/payments/payment/{payment.pk}/change/ Record the outcome" in line
        listed = admin_client.get("/admin/payments/refund/?answer=none").context["cl"].result_list
        assert len(listed) == waiting


def test_an_event_counts_once_it_is_stuck(admin_client: Client, payment: Payment) -> None:
    PaymentEvent.objects.update(handled_at=None)
    assert queue(admin_client) == []
    PaymentEvent.objects.update(attempts=3)
    (line,) = queue(admin_client)
    assert "an event is not handled" in line
    assert "log says why" in line


def test_the_oldest_come_first_in_a_statement_a_source_however_many_there_are(
    admin_client: Client, payment: Payment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worklist, "SHOWN", 2)
    for kind, hours in (("unknown_trade", 1), ("refund_failed", 3), ("content_changed", 2)):
        filed(payment, kind, timedelta(hours=hours))
    with CaptureQueriesContext(connection) as captured:
        lines = queue(admin_client)
    assert [line.split(" It waits")[0] for line in lines] == [
        "a refund was refused",
        "reported again with other content",
    ]
    statements = [sql for one in captured if 'FROM "payments_anomaly"' in (sql := one["sql"])]
    assert len(statements) == 3, "the counts, and the two sources with something"
    assert [sql for sql in statements if "LIMIT" not in sql] == []
    assert "The 2 oldest are shown" in admin_client.get("/admin/").content.decode()


@pytest.mark.usefixtures("zoned")
def test_an_empty_desk_says_what_was_looked_at_and_when_next(admin_client: Client) -> None:
    began = datetime.now(UTC)
    shown = admin_client.get("/admin/").content.decode()
    said = re.search(r"Nothing needs you\..* at (\d\d):\d\d:\d\d UTC\..* next at (0[258]):30 UTC\.", shown)
    assert said is not None
    hours = [(f"{now:%H}", f"{next_comparison(now):%H}") for now in (began, datetime.now(UTC))]
    assert said.groups() in hours
    assert shown.count("<strong>0</strong>") == 8
    assert re.search(
        r"Yesterday.*No bill of the last three days has been compared; that is next at 0[258]:30 UTC\.",
        shown,
        re.DOTALL,
    )


def test_it_shows_what_the_user_may_view(client: Client, payment: Payment) -> None:
    filed(payment, "unknown_trade")
    differing(payment)
    person = User.objects.create_user("clerk", password="clerk", is_staff=True)
    client.force_login(person)
    assert "payments-desk" not in client.get("/admin/").content.decode()
    person.user_permissions.set(Permission.objects.filter(codename="view_difference"))
    [line] = queue(client)
    assert "in the bill, unknown to us" in line
    assert "Anomalies" not in client.get("/admin/").content.decode()


COUNTED = re.compile(r'<th scope="row" id="payments-(\w+)">(?:(?!</th>).)*payments-count">(\d+)<', re.DOTALL)


class TestNavigation:
    """Every page of the admin counts what waits for a person."""

    def statements(self, client: Client, path: str) -> tuple[list[tuple[str, str]], int]:
        """Counts of a page, and the statements that read them."""
        with CaptureQueriesContext(connection) as captured:
            shown = client.get(path).content.decode()
        return COUNTED.findall(shown), sum("UNION ALL" in one["sql"] for one in captured)

    def test_one_statement_counts_on_any_page(
        self, client: Client, admin_client: Client, payment: Payment
    ) -> None:
        assert self.statements(admin_client, "/admin/auth/user/") == ([], 1)
        for kind in ("unknown_trade", "refund_failed"):
            filed(payment, kind)
        differing(payment)
        waiting = [("anomaly", "2"), ("difference", "1")]
        for path in ("/admin/auth/user/", f"/admin/payments/payment/{payment.pk}/change/"):
            assert self.statements(admin_client, path) == (waiting, 1)
        assert self.statements(admin_client, "/admin/") == ([], 1), "on the desk, without navigation"
        person = User.objects.create_user("clerk", is_staff=True)  # who may view none of it
        person.user_permissions.set(Permission.objects.filter(codename="view_user"))
        client.force_login(person)
        assert self.statements(client, "/admin/auth/user/") == ([], 0)

    def test_on_plain_django_admin(self, rf: RequestFactory, admin_user: User, payment: Payment) -> None:
        filed(payment, "unknown_trade")
        request = rf.get("/admin/")
        request.user = admin_user
        page = Template(
            '{% extends "admin/base.html" %}{% load payments %}'
            "{% block nav-sidebar %}{% payments_counts %}{{ block.super }}{% endblock %}"
        )
        assert COUNTED.findall(page.render(RequestContext(request, site.each_context(request)))) == [
            ("anomaly", "1")
        ]


def test_the_last_two_days_by_channel(admin_client: Client, payment: Payment, open_attempt: OpenAttempt) -> None:
    open_attempt(status="failed")
    fold(refunded(payment.attempts.get(), 500, "r1"))
    Attempt.objects.update(created_at=timezone.now())  # one day's, also at midnight
    yesterday = compared(timezone.now().date() - timedelta(days=1))
    shown = admin_client.get("/admin/").content.decode()
    sums = [re.sub(r"<[^>]*>", " ", row).split() for row in re.findall(r"<tr>(<td>WeChat.*?)</tr>", shown)]
    moved = ["19.90", "CNY", "5.00", "CNY", "14.90", "CNY"]
    assert sums[0] == ["WeChat", "Pay", "1", *moved, "1", "2", "50", "%"]
    assert sums[1][-2:] == [str(yesterday.day), "agrees"]


def test_the_last_two_days_keep_nothing_that_a_dispute_took(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt()
    took = {"paid_txn_id": number_of(attempt), "provider_txn_id": "du"}
    fold(paid(attempt), paid(attempt, kind=FactKind.TAKEN, amount_minor=990, **took))
    assert [(day.received_minor, day.kept_minor) for day in worklist.last_two_days()] == [(1990, 1000)]
    fold(paid(attempt, kind=FactKind.RETURNED, amount_minor=490, **took))
    assert [(day.received_minor, day.kept_minor) for day in worklist.last_two_days()] == [(1990, 1490)]


def test_the_last_two_days_count_money_once_that_two_facts_report(open_attempt: OpenAttempt) -> None:
    recorded_by_hand(open_attempt())
    gone_back_whole(open_attempt("alipay"))
    sums = {row.account: (row.paid, row.received_minor, row.refunded_minor) for row in worklist.last_two_days()}
    assert sums == {"wechat": (1, 1990, 0), "alipay": (1, 1990, 1990)}


def test_a_day_is_the_same_in_every_projects_time_zone(open_attempt: OpenAttempt) -> None:
    late = timezone.now().replace(hour=23, minute=30)
    Attempt.objects.filter(pk=open_attempt().pk).update(created_at=late)
    with timezone.override("Asia/Shanghai"):
        [row] = worklist.last_two_days()
    assert row.day == late.date()


class TestSearch:
    """One field leads to the thing."""

    def found(self, client: Client, term: str) -> str:
        answer = client.get("/admin/payments/payment/find/", {"q": term})
        return answer.headers["Location"] if answer.status_code == 302 else answer.content.decode()

    def test_whatever_a_person_holds_leads_to_the_payment(self, admin_client: Client, payment: Payment) -> None:
        User.objects.filter(username="ann").update(email="Ann@shop.example")
        attempt, short = payment.attempts.get(), payment.order_id.hex[-6:]
        Attempt.objects.filter(pk=attempt.pk).update(reference="pi_1")
        given = refund_asked(payment.pk, 500, refund_id=new_id())
        [fact] = Observation.objects.filter(attempt=attempt)
        held = [short.upper(), short, payment.order_id.hex, payment.pk.hex, attempt.out_trade_no]
        held += [given.out_refund_no, fact.provider_txn_id, "pi_1", "ann", "ann@shop.EXAMPLE", " ann "]
        held += ["19.90", "¥19.90", "19.90 CNY"]
        page = f"/admin/payments/payment/{payment.pk}/change/"
        assert {term: self.found(admin_client, term) for term in held} == dict.fromkeys(held, page)

    def test_a_key_or_request_id_leads_to_what_its_user_got(self, admin_client: Client, admin_user: User) -> None:
        entry = LedgerEntry.objects.create(
            **{"scope": f"user:{admin_user.pk} POST /orders", "key": "k-1", "mode": "phased"},
            **{"state": "uncertain", "fingerprint": b"", "owner": "host:1", "request_id": "req-12345"},
        )
        page = f"/admin/idempotency/ledgerentry/{entry.pk}/change/"
        assert [self.found(admin_client, term) for term in ("k-1", "req-12345")] == [page, page]
        assert "This key was used by admin for POST /orders. Answer: -." in admin_client.get(page).text

    def test_several_are_listed(self, admin_client: Client, payment: Payment, open_attempt: OpenAttempt) -> None:
        other = open_attempt().payment_id
        listed = self.found(admin_client, "19.90")
        assert f"/payment/{payment.pk}/change/" in listed
        assert f"/payment/{other}/change/" in listed
        for term in ("19.91", "nobody@shop.example", "ffffff", "9" * 40, "19.90 USD", "1,9"):
            assert "Nothing is known under" in self.found(admin_client, term)

    def test_what_is_no_payment_yet(self, admin_client: Client, payment: Payment, new_order: Any) -> None:
        order = new_order()
        filed(payment, "content_changed")
        assert self.found(admin_client, order.pk.hex[-6:]) == f"/admin/shop/order/{order.pk}/change/"
        assert "/admin/payments/anomaly/" in self.found(admin_client, "content_changed")

    def test_nobody_finds_what_they_may_not_view(self, client: Client, payment: Payment, new_order: Any) -> None:
        person = User.objects.create_user("clerk", password="clerk", is_staff=True)
        client.force_login(person)
        assert client.get("/admin/payments/payment/find/", {"q": "ann"}).status_code == 403
        person.user_permissions.set(Permission.objects.filter(codename="view_payment"))
        assert payment.pk.hex in self.found(client, "ann").replace("-", "")
        assert "Nothing is known" in self.found(client, new_order().pk.hex)

    def test_each_way_is_bounded(self, admin_client: Client, payment: Payment) -> None:
        with CaptureQueriesContext(connection) as captured:
            self.found(admin_client, "abcdef")
        read = [sql for one in captured if re.search("FROM .(payments|idempotency|shop)_", sql := one["sql"])]
        assert [sql for sql in read if "LIMIT" not in sql] == []
