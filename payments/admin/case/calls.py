"""Calls about a payment: those to us under a key, and ours to providers."""

from collections.abc import Iterator

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from idempotency.admin.answer_display import heading
from idempotency.admin.log_display import called, name_of
from idempotency.maintenance import request_log
from idempotency.models import ArrivalOutcome, LedgerEntry
from idempotency.postgres import home
from payments.admin.case.history import Moment
from payments.admin.case.records import MOST
from payments.admin.pages import page_of
from payments.channels.accounts import account_name
from payments.display import ANSWERED, stored_text
from payments.models import Payment, ProviderCall

KEYS_MAX = 20  # each is looked up in Redis, too

_WITH_ANSWER = frozenset({ArrivalOutcome.EXECUTED, ArrivalOutcome.REPLAYED, ArrivalOutcome.REFUSED})
_REFUSALS = frozenset({ArrivalOutcome.REUSED, ArrivalOutcome.FAILED, ArrivalOutcome.UNCERTAIN})

CALLS = {
    "create": gettext_noop("asked the provider to open"),
    "query": gettext_noop("asked the provider about the payment"),
    "capture": gettext_noop("asked the provider to capture"),
    "close": gettext_noop("asked the provider to close"),
    "refund": gettext_noop("asked the provider to refund"),
    "query_refund": gettext_noop("asked the provider about the refund"),
}
ANSWERS = (
    *(gettext_noop("opened"), gettext_noop("not found"), gettext_noop("approved")),
    *(gettext_noop("unfunded"), gettext_noop("stuck")),
)


def to_providers(payment: Payment) -> list[Moment]:
    """List our calls to providers about the payment's attempts and refunds."""
    rows = ProviderCall.objects.filter(attempt__payment=payment).select_related("attempt")
    return [_of_call(call) for call in rows.order_by("id")[:MOST]]


def under_keys(payment: Payment) -> list[Moment]:
    """List each call under a key of the payment or its order: executed, replayed or refused.

    Calls that Redis lost are missing, and those whose answer named neither, such as a refused opening.
    """
    subjects = [f"payment:{payment.pk.hex}", f"order:{payment.order_no}"]
    entries = LedgerEntry.objects.using(home.alias()).filter(subject__in=subjects)
    slim = entries.defer("response_body", "fingerprint", "recovery_data").order_by("pk")[:KEYS_MAX]
    return [moment for entry in slim for moment in _of_entry(entry)]


def _of_entry(entry: LedgerEntry) -> Iterator[Moment]:
    log = request_log.log_of(scope=entry.scope, key=entry.key)
    caller, call = called(entry, log)
    address = reverse("admin:idempotency_ledgerentry_change", args=[entry.pk])
    who, answer = name_of(caller), _answer(entry)
    for line in log.lines:
        became = str(ArrivalOutcome(line.outcome).label)
        about = {"call": call, "became": became}
        differed = ", ".join(log.changes.get(line.line_id, ()))
        got = answer if line.outcome in _WITH_ANSWER else ""
        yield Moment(
            at=line.at,
            what=_("%(call)s: %(became)s") % about,
            who=who,
            note="; ".join(
                filter(None, [got, differed, _("request %s") % line.request_id if line.request_id else ""])
            ),
            address=address,
            alarm=line.outcome in _REFUSALS,
        )


def _answer(entry: LedgerEntry) -> str:
    """Say what the caller got: the status, and the page it leads to or the words of a refusal."""
    status = entry.response_status
    if status is None:  # it runs, or is uncertain
        return ""
    words = heading(entry) if status >= 400 else entry.response_headers.get("Location", "").partition("?")[0]
    return ": ".join(filter(None, [_(ANSWERED) % {"status": status}, words]))


def _of_call(call: ProviderCall) -> Moment:
    answer = stored_text(call.answer) if call.failed else _(call.answer.replace("_", " "))
    return Moment(
        at=call.ended_at,
        what=_("%(call)s: %(became)s") % {"call": _(CALLS[call.method]), "became": answer},
        who=account_name(call.attempt.account),
        note=_("took %s ms") % call.milliseconds,
        address=page_of(call.attempt),
        alarm=call.failed,
    )
