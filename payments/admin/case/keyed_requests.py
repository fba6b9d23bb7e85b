"""Keyed requests about a payment or its order, from the request log of their keys."""

from collections.abc import Iterator

from django.urls import reverse
from django.utils.translation import gettext as _

from idempotency.admin.log_display import name_of
from idempotency.maintenance import request_log
from idempotency.models import ArrivalOutcome, LedgerEntry
from idempotency.postgres import home
from payments.admin.case.history import Moment
from payments.models import Payment

KEYS_MAX = 20  # each is looked up in Redis, too

_REFUSALS = frozenset({ArrivalOutcome.REUSED, ArrivalOutcome.FAILED, ArrivalOutcome.UNCERTAIN})


def moments(payment: Payment) -> list[Moment]:
    """List each call under a key of the payment or its order: executed, replayed or refused.

    Calls that Redis lost are missing, and those whose answer named neither, such as a refused opening.
    """
    subjects = [f"payment:{payment.pk.hex}", f"order:{payment.order_no}"]
    entries = LedgerEntry.objects.using(home.alias()).filter(subject__in=subjects)
    slim = entries.defer("response_body", "fingerprint", "recovery_data").order_by("pk")[:KEYS_MAX]
    return [moment for entry in slim for moment in _of_entry(entry)]


def _of_entry(entry: LedgerEntry) -> Iterator[Moment]:
    log = request_log.log_of(scope=entry.scope, key=entry.key)
    caller, call = request_log.read_scope(entry.scope)
    address = reverse("admin:idempotency_ledgerentry_change", args=[entry.pk])
    who = name_of(caller)
    for line in log.lines:
        became = str(ArrivalOutcome(line.outcome).label)
        about = {"call": call, "became": became}
        differed = ", ".join(log.changes.get(line.line_id, ()))
        yield Moment(
            at=line.at,
            what=_("%(call)s: %(became)s") % about,
            who=who,
            note="; ".join(filter(None, [differed, _("request %s") % line.request_id if line.request_id else ""])),
            address=address,
            alarm=line.outcome in _REFUSALS,
        )
