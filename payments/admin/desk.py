"""The operator's desk on the admin's start page: open work, and the accounts' sums."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import chain
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from idempotency.admin.labels import utc, utc_time
from payments.admin.badges import badge
from payments.admin.pages import link, link_to_order, page_of
from payments.channels import accounts
from payments.channels.accounts import account_name
from payments.display import amounts, at_stake, money, refund_money
from payments.operations import figures, worklist
from payments.operations.manual import attempt_of
from payments.operations.worklist import DayOfAccount, Work
from payments.reconciliation.bills import next_comparison
from payments.states import REFUNDED_BY_POLICY

# of each source: its name, and the state and value that choose its rows in a list
SOURCES = {
    "anomaly": (gettext_noop("Anomalies"), ""),
    "attempt": (gettext_noop("Uncertain attempts"), "answer=none"),
    "refund": (gettext_noop("Uncertain refunds"), "answer=none"),
    "refused": (gettext_noop("Refused refunds"), "kind=refund_failed"),
    "difference": (gettext_noop("Differences of bills"), ""),
    "event": (gettext_noop("Stuck events"), "waiting=1"),
    "delivery": (gettext_noop("Deliveries given up"), "status=failed"),
    "notification": (gettext_noop("Failed notifications"), "kind=notification_failed"),
}

# of sources whose rows have no kind of their own: the badge and its words
_TROUBLES = {
    "attempt": ("uncertain", gettext_noop("payment without an answer")),
    "refund": ("uncertain", gettext_noop("refund without an answer")),
    "event": ("failed", gettext_noop("an event is not handled")),
    "delivery": ("failed", gettext_noop("a decision was not delivered")),
}
# the money of what is no anomaly
_MONEY: dict[str, Callable[[Any], str]] = {
    "attempt": lambda row: money(row.amount_minor, row.currency),
    "refund": refund_money,
    "difference": lambda row: money(row.theirs_minor or row.ours_minor, row.currency),
    "event": lambda row: money(row.paid_minor, row.payment.currency),
    "delivery": lambda row: "-",
}


def context(request: HttpRequest) -> dict[str, Any]:
    """Build what the desk shows to this user: nothing of models that they may not view."""
    found = counts(request)
    if not found:
        return {}
    now = timezone.now()
    held = figures.held() if request.user.has_perm("payments.view_journalline") else []
    oldest = worklist.oldest([source for source, count in found.items() if count])
    items = [item(request, work, now) for work in oldest]
    return {
        "counts": [(_(SOURCES[source][0]), count, _list_of(source)) for source, count in found.items()],
        "items": items,
        "is_cut": sum(found.values()) > len(items),
        "looked_at": utc_time(now),
        "next_bills": f"{next_comparison(now):%H:%M}",
        "held": [money(-row.balance_minor, row.currency) for row in held if row.balance_minor],
        "days": days(now) if request.user.has_perm("payments.view_payment") else [],
    }


def counts(request: HttpRequest) -> dict[str, int]:
    """Count what waits of each source that the user may view, in one statement a request."""
    if "payments_waiting" not in vars(request):
        allowed = [source for source in SOURCES if request.user.has_perm(f"payments.view_{_model_of(source)}")]
        vars(request)["payments_waiting"] = worklist.counts(allowed)
    found: dict[str, int] = vars(request)["payments_waiting"]
    return found


def count_in_navigation(request: HttpRequest, applications: list[dict[str, Any]]) -> None:
    """Write what waits behind the names of the lists in `available_apps` of an `AdminSite`."""
    waiting: Counter[Any] = Counter()
    for source, count in counts(request).items():
        waiting[worklist.model_of(source)] += count
    for model in chain.from_iterable(application["models"] for application in applications):
        if count := waiting[model["model"]]:
            model["name"] = format_html('{} <strong class="payments-count">{}</strong>', model["name"], count)


def item(request: HttpRequest, work: Work, now: datetime) -> dict[str, Any]:
    """Describe a row, with the one thing to do next."""
    action, address = _next_action(request, work)
    payment = work.row.payment
    return {
        "what": badge(*_what(work)),
        "note": _note(work),
        "amount": _MONEY.get(work.source, at_stake)(work.row),
        "customer": payment.owner.get_username() if payment and payment.owner else "-",
        "order": link_to_order(payment.order_no) if payment else "-",
        "age": timesince(work.since, now, depth=1),
        "action": action,
        "address": address,
    }


def days(now: datetime) -> list[tuple[str, list[dict[str, Any]]]]:
    """Sum up today and yesterday by account, beside the newest bill of each."""
    bills = {
        accounts.of_merchant(row.channel, row.merchant): (row, still_open)
        for row, still_open in worklist.newest_bills()
    }
    found, today = worklist.last_two_days(), now.date()
    day_before = today - timedelta(days=1)
    yesterday = [row for row in found if row.day != today]
    quiet = set(bills) - {row.account for row in yesterday}
    yesterday += [DayOfAccount(day_before, account, bills[account][0].currency) for account in sorted(quiet)]
    with_bill = [_sums(row) | {"bill": _bill(bills.get(row.account), now)} for row in yesterday]
    return [
        (_("Today") + f" {today}", [_sums(row) for row in found if row.day == today]),
        (_("Yesterday") + f" {day_before}", with_bill),
    ]


def _model_of(source: str) -> str:
    return str(worklist.model_of(source)._meta.model_name)


def _list_of(source: str) -> str:
    return f"{reverse(f'admin:payments_{_model_of(source)}_changelist')}?{SOURCES[source][1]}"


def _what(work: Work) -> tuple[str, str]:
    if work.source in _TROUBLES:
        return _TROUBLES[work.source]
    return "failed" if work.source in {"refused", "notification"} else "anomaly", work.row.get_kind_display()


def _note(work: Work) -> str:
    """Say what happens by itself."""
    row = work.row
    match work.source:
        case "attempt" | "refund":
            return _next_question(row)
        case "event":
            return _("It is tried again twice a minute; the worker's log says why it waits.")
        case "delivery":
            given_up = _("%(endpoint)s did not take it in time; it is not sent again by itself.")
            return given_up % {"endpoint": row.endpoint}
        case "anomaly" if row.needs_approval:
            return _("The refund is above the limit: it waits for your approval.")
        case "anomaly" if row.kind in REFUNDED_BY_POLICY:
            return _("It is being refunded; see that the refund ends.")
    return _("It waits for you.")


def _next_question(row: Any) -> str:
    name = account_name(attempt_of(row).account)
    if row.is_former:
        former = _("%(account)s is no longer configured here for its merchant: nobody can be asked.")
        return former % {"account": name}
    if row.next_query_at is None:
        return _("%(channel)s is not asked again by itself.") % {"channel": name}
    about = {"channel": name, "at": f"{utc_time(row.next_query_at)} UTC"}
    return _("%(channel)s is asked again at %(at)s; nothing moves twice.") % about


def _next_action(request: HttpRequest, work: Work) -> tuple[str, str]:
    row, may = work.row, request.user.has_perm
    page = page_of(row)
    match work.source:
        case "attempt" | "refund" if row.next_query_at and not row.is_former and may("payments.query_payment"):
            return _("Ask now"), reverse("admin:payments_payment_ask", args=[row.payment_id])
        case "attempt" | "refund" if may("payments.view_payment"):
            return _("Record the outcome"), page_of(row.payment)
        case "notification" if may("payments.view_notification"):
            found = urlencode({"q": row.reference})
            return _("Process it again"), f"{reverse('admin:payments_notification_changelist')}?{found}"
        case "event" | "delivery":
            words = _("See the event") if work.source == "event" else _("See the delivery")
            if work.source == "delivery" and may("payments.replay_delivery"):
                words, page = _("Send again"), reverse("admin:payments_delivery_replay", args=[row.pk])
            return words, page
        case "anomaly" if row.kind in REFUNDED_BY_POLICY:
            if row.needs_approval and may("payments.refund_payment"):
                page = reverse("admin:payments_anomaly_approve", args=[row.pk])
            return _("Approve the refund") if row.needs_approval else _("See its refund"), page
    return _("Find out and resolve"), page


def _sums(row: DayOfAccount) -> dict[str, Any]:
    return {
        "channel": account_name(row.account),
        "opened": row.opened,
        "paid": row.paid,
        **amounts(row, "received", "refunded", "kept"),
        "failed": row.failed,
        "conversion": f"{row.conversion} %",
    }


def _bill(known: tuple[Any, int] | None, now: datetime) -> SafeString | str:
    if known is None:
        return _("not compared yet; next at %(at)s") % {"at": utc(next_comparison(now))}
    row, still_open = known
    words = _("%(count)s open") % {"count": still_open} if still_open else gettext_noop("agrees")
    return format_html("{} {}", link(row, str(row.day)), badge("open" if still_open else "agrees", words))
