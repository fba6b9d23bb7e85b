"""Manual settlement of an attempt or refund by what the provider's own pages show.

An operator's record is settled like any other fact, under our number: what the provider reports of that later, by
whatever number, is the same money (`PaymentState.confirmed_by`). A refund that did not move ends as a refused one.
"""

from dataclasses import replace
from datetime import timedelta

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext as _

from idempotency.admin.labels import utc
from payments.attempts import calling, closing
from payments.channels.accounts import OPEN, account_name
from payments.display import money
from payments.errors import ChannelOff, OtherMerchant
from payments.models import Attempt, Observation, Payment, Refund
from payments.operations import actions
from payments.operations.actions import ATTEMPT_IS, REFUND_IS, NotDecidable, Operator, Result, named
from payments.providers.base import FactKind
from payments.refunds import steps as refunds
from payments.settlement import backoff
from payments.settlement.decision import Outcome
from payments.settlement.settle import settle_here
from payments.settlement.state import BY_HAND
from payments.states import AttemptStatus, RefundStatus


def recordable(payment: Payment) -> list[Attempt | Refund]:
    """List the open attempts and refunds whose outcome an operator may record."""
    attempts, waiting = actions.open_questions(payment)
    rows: list[Attempt | Refund] = [*attempts, *waiting]
    return [row for row in rows if _is_recordable(row)]


def why_manual(row: Attempt | Refund) -> str:
    """Return the reason why its provider cannot answer, as the end of a sentence.

    Raises:
        NotDecidable: it can, or the row is over.
    """
    about = {"row": named(row), "status": row.get_status_display()}
    if row.status not in OPEN[type(row)][0]:
        raise NotDecidable(_("Nothing changed: %(row)s is over (%(status)s).") % about)
    attempt = attempt_of(row)
    try:
        calling.provider_of(attempt)
    except OtherMerchant:
        return _("the account is configured for another merchant")
    except ChannelOff:
        return _("the account is not configured here")
    if row.status == AttemptStatus.UNCERTAIN and not _was_just_submitted(row):
        silent = _("it has given no answer that can be trusted for more than %(minutes)s minutes")
        return silent % {"minutes": _minutes(backoff.IN_DOUBT)}
    about["account"] = account_name(attempt.account)
    raise NotDecidable(_("%(account)s can answer for %(row)s: ask the provider.") % about)


def why_not_ended(row: Attempt | Refund) -> str:
    """Return the reason why money may still move, as a sentence; empty if it cannot."""
    if isinstance(row, Attempt):
        until = row.expires_at + closing.LOOK_AGAIN
        if row.submitted_at is None or until <= timezone.now():
            return ""
        payable = _("%(row)s can be paid until %(until)s UTC; until then it cannot be recorded as never paid.")
        return payable % {"row": named(row), "until": utc(until)}
    if not _was_just_submitted(row):
        return ""
    in_doubt = _(
        "What was asked of %(account)s about %(row)s may still be carried out; for %(minutes)s minutes it cannot"
        " be recorded as not moved."
    )
    account = account_name(row.attempt.account)
    return in_doubt % {"account": account, "row": named(row), "minutes": _minutes(backoff.IN_DOUBT)}


def record(row: Attempt | Refund, *, moved: bool, number: str = "", by: Operator) -> Result:
    """Record what the operator has read; fact, audit line and all that follows commit together.

    Args:
        moved: the attempt was paid with what was asked for, or the refund went back; else neither ever will be.
        number: the provider's, of what moved; for the audit line.

    Raises:
        NotDecidable: its provider can answer, it has ended, money may still move, or the number is another one's.

    Transaction: opens its own; locks the payment's row, then the attempt's or refund's. No network.
    """
    with transaction.atomic():
        # a contrary record queues here, then finds it ended
        payment = Payment.objects.select_for_update(no_key=True).get(pk=row.payment_id)
        # a submission takes no lock of the payment, and so waits for this one
        found = type(row)._default_manager.select_for_update(no_key=True).get(pk=row.pk)
        why_manual(found)
        if not moved and (too_early := why_not_ended(found)):
            raise NotDecidable(too_early)
        if moved and _is_known(found, number):
            known = _("Nothing changed: %(number)s is known already, of another payment or refund.")
            raise NotDecidable(known % {"number": number})
        if isinstance(found, Attempt):
            recorded, result = _record_attempt(found, moved, number)
        else:
            recorded, result = _record_refund(found, moved, number)
        actions.audit(payment, _("Recorded that %(what)s") % {"what": recorded}, by=by, result=result)
    return Result(done=True, sentences=[result])


def attempt_of(row: Attempt | Refund) -> Attempt:
    """Return the trade that it is, or that it takes money from."""
    return row if isinstance(row, Attempt) else row.attempt


def _record_attempt(attempt: Attempt, moved: bool, number: str) -> tuple[str, str]:
    """Settle an attempt; return the record (mid-sentence) and its result (a sentence)."""
    name = named(attempt)
    if not moved:
        settle_here(closing.ended_unpaid(attempt), source=BY_HAND)
        result = actions.outcome_of(name, ATTEMPT_IS[AttemptStatus.CLOSED])
        return _("%(row)s was never paid and cannot be any more") % {"row": name}, result
    fact = replace(closing.ended_unpaid(attempt), kind=FactKind.PAID, amount_minor=attempt.amount_minor)
    counts = settle_here(fact, source=BY_HAND) == [Outcome.APPLIED]
    became = _("it was paid, and that counts for the order")
    if not counts:
        became = _(
            "it was paid, and the order does not take that: it is stored as an anomaly and goes back to the payer"
        )
    about = {"row": name, "money": money(attempt.amount_minor, attempt.currency), "number": number}
    return _("%(row)s was paid with %(money)s as %(number)s") % about, actions.outcome_of(name, became)


def _record_refund(refund: Refund, moved: bool, number: str) -> tuple[str, str]:
    """Settle a refund, as `_record_attempt`."""
    name = _("Refund %(number)s") % {"number": refund.out_refund_no}
    about = {"row": named(refund), "number": number}
    if not moved:
        refunds.end_unmoved(refund, message="an operator recorded that it did not move")
        became = _("nothing moved; it has failed, and an anomaly is filed")
        return _("%(row)s did not move") % about, actions.outcome_of(name, became)
    charge = refunds.charge_of(refund)
    fact = replace(
        closing.ended_unpaid(refund.attempt),
        kind=FactKind.REFUNDED,
        provider_txn_id=refund.out_refund_no,
        amount_minor=refund.amount_minor,
        currency=charge.currency,
        out_refund_no=refund.out_refund_no,
        paid_txn_id=charge.provider_txn_id,
    )
    settle_here(fact, source=BY_HAND)
    result = actions.outcome_of(name, REFUND_IS[RefundStatus.SUCCEEDED])
    return _("%(row)s went back as %(number)s") % about, result


def _is_known(row: Attempt | Refund, number: str) -> bool:
    """Check for another fact of that number at the provider, which cannot be this row's."""
    attempt = attempt_of(row)
    facts = Observation.objects.filter(channel=attempt.channel, merchant=attempt.merchant, provider_txn_id=number)
    return facts.exists()


def _is_recordable(row: Attempt | Refund) -> bool:
    try:
        return bool(why_manual(row))
    except NotDecidable:
        return False


def _was_just_submitted(row: Attempt | Refund) -> bool:
    """Check for a request that may still be carried out, by the database's clock."""
    since = Now() - backoff.IN_DOUBT
    return type(row)._default_manager.filter(pk=row.pk, submitted_at__gt=since).exists()


def _minutes(span: timedelta) -> int:
    return int(span.total_seconds() // 60)
