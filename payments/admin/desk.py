"""The operator's desk on the admin's start page: what needs a person, and the accounts' sums."""

from collections import Counter
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
from payments.admin.pages import link, link_to_order
from payments.channels import accounts
from payments.channels.accounts import account_name
from payments.display import amounts, money, stake
from payments.models import Anomaly, Difference
from payments.operations import figures, worklist
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


def context(request: HttpRequest) -> dict[str, Any]:
    """Build what the desk shows to this user: nothing of models that they may not view."""
    found = counts(request)
    if not found:
        return {}
    now = timezone.now()
    held = figures.held() if request.user.has_perm("payments.view_journalline") else []
    items = [item(request, work, now) for work in worklist.oldest(found)] if any(found.values()) else []
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
    known = work.amount_minor is not None and bool(work.currency)
    detail = work.detail or {}
    currency = detail.get("currency") or work.currency or ""
    return {
        "what": badge(*_what(work)),
        "note": _note(work),
        "amount": money(work.amount_minor or 0, currency) if known else stake(work.about, detail, currency),
        "customer": work.customer or "-",
        "order": link_to_order(work.order_no) if work.order_no else "-",
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
    kinds = Difference.Kind if work.source == "difference" else Anomaly.Kind
    return "failed" if work.source in {"refused", "notification"} else "anomaly", str(kinds(work.about).label)


def _note(work: Work) -> str:
    """Say what happens by itself."""
    if work.source in {"attempt", "refund"}:
        return _next_question(work)
    if work.source == "event":
        return _("It is tried again twice a minute; the worker's log says why it waits.")
    if work.source == "delivery":
        given_up = _("%(endpoint)s did not take it in time; it is not sent again by itself.")
        return given_up % {"endpoint": work.reference}
    if work.needs_approval:
        return _("The refund is above the limit: it waits for your approval.")
    if work.about in REFUNDED_BY_POLICY:
        return _("It is being refunded; see that the refund ends.")
    return _("It waits for you.")


def _next_question(work: Work) -> str:
    if work.is_former:
        former = _("%(account)s is no longer configured here for its merchant: nobody can be asked.")
        return former % {"account": account_name(work.about)}
    if work.due is None:
        return _("%(channel)s is not asked again by itself.") % {"channel": account_name(work.about)}
    about = {"channel": account_name(work.about), "at": f"{utc_time(work.due)} UTC"}
    return _("%(channel)s is asked again at %(at)s; nothing moves twice.") % about


def _next_action(request: HttpRequest, work: Work) -> tuple[str, str]:
    change = reverse(f"admin:payments_{_model_of(work.source)}_change", args=[work.pk])
    match work.source:
        case "attempt" | "refund" if (
            work.due is not None and not work.is_former and request.user.has_perm("payments.query_payment")
        ):
            return _("Ask now"), reverse("admin:payments_payment_ask", args=[work.payment_id])
        case "attempt" | "refund" if request.user.has_perm("payments.view_payment"):
            return _("Record the outcome"), reverse("admin:payments_payment_change", args=[work.payment_id])
        case "notification" if request.user.has_perm("payments.view_notification"):
            found = urlencode({"q": work.reference})
            return _("Process it again"), f"{reverse('admin:payments_notification_changelist')}?{found}"
        case "event" | "delivery":
            words = _("See the event") if work.source == "event" else _("See the delivery")
            if work.source == "delivery" and request.user.has_perm("payments.replay_delivery"):
                words, change = _("Send again"), reverse("admin:payments_delivery_replay", args=[work.pk])
            return words, change
        case "anomaly" if work.about in REFUNDED_BY_POLICY:
            if work.needs_approval and request.user.has_perm("payments.refund_payment"):
                change = reverse("admin:payments_anomaly_approve", args=[work.pk])
            return _("Approve the refund") if work.needs_approval else _("See its refund"), change
    return _("Find out and resolve"), change


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
