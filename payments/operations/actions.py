"""Acts of an operator about money: each leaves an audit line, in their language.

An act in one transaction of ours commits with its line (`AuditEntry`). An act that asks a provider, or commits on
its way, first commits a line with the operator and reason, and its result becomes a line of its own: without a
line, nothing was done.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import models, transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from idempotency.postgres.availability import database_is_away
from payments.attempts import calling, closing
from payments.channels.accounts import account_name
from payments.display import refund_money, stored_text
from payments.errors import (
    ChannelOff,
    ChannelUnavailable,
    NotificationMalformed,
    OtherMerchant,
    OutcomeUnknown,
    ProviderError,
    ProviderRejected,
    ProviderUnavailable,
    RefundExceedsPaid,
    RefundUnavailable,
    SignatureInvalid,
)
from payments.models import Anomaly, Attempt, AuditEntry, Difference, Notification, Payment, Refund
from payments.models.audit import subject_of
from payments.reconciliation import bills
from payments.refunds import steps as refunds
from payments.settlement import anomalies
from payments.states import LIVE_ATTEMPTS, OPEN_REFUNDS, AttemptStatus, RefundStatus
from payments.webhooks import intake as webhooks

_WHY: dict[type[Exception], Any] = {
    ProviderUnavailable: gettext_lazy("cannot be reached at the moment"),
    OutcomeUnknown: gettext_lazy("gave no answer that can be trusted"),
    SignatureInvalid: gettext_lazy("gave no answer that can be trusted"),
    ProviderRejected: gettext_lazy("refused the question"),
    ChannelOff: gettext_lazy("is not configured here"),
    OtherMerchant: gettext_lazy("is configured for another merchant"),
}

ASKED_MAX = 10  # questions to providers a click; each may take seconds

ATTEMPT_IS = {
    AttemptStatus.CREATED: gettext_lazy("the provider does not know it yet"),
    AttemptStatus.PENDING: gettext_lazy("it is open and not paid"),
    AttemptStatus.UNCERTAIN: gettext_lazy("the provider does not know of it (yet); the outcome stays unknown"),
    AttemptStatus.SUCCEEDED: gettext_lazy("it was paid"),
    AttemptStatus.CLOSED: gettext_lazy("it ended unpaid"),
    AttemptStatus.FAILED: gettext_lazy("the provider refused to open it"),
}
REFUND_IS = {
    RefundStatus.REQUESTED: gettext_lazy("it is reserved; the provider has not taken it yet, the timer sends it"),
    RefundStatus.PROCESSING: gettext_lazy("the provider has taken it and is working on it; the timer asks on"),
    RefundStatus.UNCERTAIN: gettext_lazy(
        "the provider gave no answer that can be trusted; it stays reserved, and the timer asks on under the same"
        " number"
    ),
    RefundStatus.SUCCEEDED: gettext_lazy("the money went back"),
    RefundStatus.FAILED: gettext_lazy("the provider refused it and nothing moved; an anomaly is filed"),
}
VERDICT_IS = {
    Notification.Verdict.APPLIED: gettext_lazy("its effect is applied"),
    Notification.Verdict.DUPLICATE: gettext_lazy("everything in it was known; nothing changed"),
    Notification.Verdict.HELD: gettext_lazy("it is about something that comes later; it waits for its payment"),
    Notification.Verdict.QUARANTINED: gettext_lazy("it stays in quarantine"),
    Notification.Verdict.ANOMALY: gettext_lazy("its content does not fit and is stored as an anomaly"),
    Notification.Verdict.IGNORED: gettext_lazy("it moves no money"),
    Notification.Verdict.ERROR: gettext_lazy("it failed again"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The deciding operator and their reason, stored under their name."""

    user_id: Any  # the primary key of their account
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of an act, in a sentence each; `done` if it came to what was wanted."""

    done: bool
    sentences: list[str]
    verdict: str = ""  # of a notification that was processed again


class NotDecidable(Exception):
    """The row is not, or no longer, open to this decision; the message gives the reason."""


def open_questions(payment: Payment) -> tuple[list[Attempt], list[Refund]]:
    """List up to `ASKED_MAX` askable attempts and open refunds, oldest first."""
    attempts = list(payment.attempts.filter(status__in=LIVE_ATTEMPTS).order_by("id")[:ASKED_MAX])
    room = ASKED_MAX - len(attempts)
    waiting = payment.refunds.filter(status__in=OPEN_REFUNDS).select_related("attempt").order_by("created_at")
    return attempts, list(waiting[:room])


def named(row: Attempt | Refund) -> str:
    """Name the row, as the middle of a sentence."""
    if isinstance(row, Attempt):
        account = account_name(row.account)
        return _("%(account)s attempt %(number)s") % {"account": account, "number": row.out_trade_no}
    about = {"number": row.out_refund_no, "money": refund_money(row)}
    return _("refund %(number)s of %(money)s") % about


def ask(payment: Payment, *, by: Operator) -> Result:
    """Ask the providers about everything open of the payment, and settle their answers.

    A refund that its provider does not know is sent, under its own number.

    Raises:
        NotDecidable: nothing is open.

    Transaction: NONE may be open.
    """
    attempts, waiting = open_questions(payment)
    if not attempts and not waiting:
        raise NotDecidable(_("Nothing of this payment is open, so there is nothing to ask about."))
    about = ", ".join([*map(named, attempts), *map(named, waiting)])
    _announce(payment, _("Asks about %(what)s") % {"what": about}, by=by)
    answers = [_ask_attempt(attempt) for attempt in attempts] + [_submit(refund) for refund in waiting]
    result = Result(done=all(fine for fine, _ in answers), sentences=[sentence for _, sentence in answers])
    audit(payment, _("Asked the provider"), by=by, result=" ".join(result.sentences))
    return result


def refund(payment: Payment, *, refund_id: UUID, amount_minor: int, shown_reason: str, by: Operator) -> Result:
    """Refund a part of the payment, once for each `refund_id`.

    Args:
        refund_id: made with the form, so that the same form sent twice refunds once: it is the primary key.
        amount_minor: above zero, in minor units.
        shown_reason: the reason that the shopper reads, at most 80 characters.

    Raises:
        NotDecidable: not so much is left, or the number is that of another refund.

    Transaction: NONE may be open.
    """
    calling.must_be_outside_transactions()
    with transaction.atomic():
        # concurrent duplicates queue here, so the second finds the first one's row
        Payment.objects.select_for_update(no_key=True).get(pk=payment.pk)
        known = Refund.objects.filter(pk=refund_id).first()
        if known is not None and (known.payment_id, known.amount_minor) != (payment.pk, amount_minor):
            raise NotDecidable(_("This form has been used for another refund. Open a new one."))
        if known is None:
            known = _reserve(payment, refund_id=refund_id, amount_minor=amount_minor, shown_reason=shown_reason)
            audit(payment, _("Asked for %(refund)s") % {"refund": named(known)}, by=by, result=_("reserved."))
    fine, sentence = _submit(known)
    audit(payment, _("Sent %(refund)s") % {"refund": named(known)}, by=by, result=sentence)
    return Result(done=fine, sentences=[sentence])


def process_again(row: Notification, *, by: Operator) -> Result:
    """Process a stored notification again; its facts still count once. No network.

    Transaction: NONE may be open.
    """
    done, verdict = False, ""
    try:
        _announce(row, _("Processes it again"), by=by)
        verdict = webhooks.replay(row.pk)
        done, sentence = True, outcome_of(_("Processed again"), VERDICT_IS[Notification.Verdict(verdict)])
    except SignatureInvalid as error:
        sentence = _("Our keys do not verify it any more (%(error)s); nothing changed.") % {"error": error}
    except NotificationMalformed as error:
        sentence = _("It cannot be read (%(error)s); nothing changed.") % {"error": error}
    except ChannelUnavailable:
        unknown = _("The account %(account)s is not configured here; nothing changed.")
        sentence = unknown % {"account": account_name(row.account)}
    except webhooks.ProcessingFailed as error:
        sentence = _("It failed, and nothing of it is applied: %(error)s") % {"error": error}
    except Exception as error:
        if not database_is_away(error):
            raise
        sentence = _("The database gave up on it, perhaps after it was applied. Try again: its facts count once.")
    audit(row, _("Processed again"), by=by, result=sentence)
    return Result(done=done, sentences=[sentence], verdict=verdict)


def resolve(row: Anomaly | Difference, *, by: Operator) -> Result:
    """Resolve an anomaly or a difference, with the operator's reason as the resolution.

    Raises:
        NotDecidable: it is settled already, or its refund waits for approval.

    Transaction: opens its own.
    """
    with transaction.atomic():
        locked: Any = type(row)._default_manager.select_for_update(no_key=True).get(pk=row.pk)
        if locked.resolved_at is not None:
            before = {"resolution": stored_text(locked.resolution)}
            raise NotDecidable(_("It has been resolved before: %(resolution)s") % before)
        if getattr(locked, "needs_approval", False):
            raise NotDecidable(_("Its refund waits for approval: approve or decline that."))
        resolve_row = anomalies.resolve if isinstance(row, Anomaly) else bills.resolve
        resolve_row(row.pk, resolution=by.reason)
        audit(row, _("Resolved"), by=by, result=_("settled."))
    return Result(done=True, sentences=[_("The %(what)s is resolved.") % {"what": row._meta.verbose_name}])


def outcome_of(name: str, became: Any) -> str:
    return _("%(name)s: %(became)s.") % {"name": name, "became": became}


def audit(row: models.Model, action: str, *, by: Operator, result: str) -> None:
    """Write the audit line, in the caller's transaction if there is one.

    Raises:
        ObjectDoesNotExist: there is no account of that number.
    """
    operator = get_user_model()._default_manager.get(pk=by.user_id)
    AuditEntry.objects.create(
        subject=subject_of(row),
        operator=operator.get_username(),
        operator_id=str(operator.pk),
        message=_("%(act)s. Reason: %(reason)s Result: %(result)s")
        % {"act": action, "reason": _sentence(by.reason), "result": result},
    )


def _reserve(payment: Payment, *, refund_id: UUID, amount_minor: int, shown_reason: str) -> Refund:
    try:
        return refunds.request_refund(
            payment_id=payment.pk, amount_minor=amount_minor, reason=shown_reason, refund_id=refund_id
        )
    except RefundExceedsPaid:
        raise NotDecidable(_("Not so much is left to refund any more. Look again.")) from None
    except RefundUnavailable as refused:
        raise NotDecidable(str(refused)) from None


def _ask_attempt(attempt: Attempt) -> tuple[bool, str]:
    name = named(attempt)
    if trouble := _trouble_at(attempt.account, lambda: closing.query_attempt(attempt.pk)):
        return False, _("%(name)s: %(trouble)s; nothing changed.") % {"name": name, "trouble": trouble}
    attempt.refresh_from_db(fields=["status"])
    return True, outcome_of(name, ATTEMPT_IS[AttemptStatus(attempt.status)])


def _submit(refund: Refund) -> tuple[bool, str]:
    name = _("Refund %(number)s") % {"number": refund.out_refund_no}
    if trouble := _trouble_at(refund.attempt.account, lambda: refunds.submit_refund(refund.pk)):
        about = {"name": name, "trouble": trouble}
        return False, _("%(name)s: %(trouble)s; it stays reserved, and the timer tries again.") % about
    refund.refresh_from_db()
    status = RefundStatus(refund.status)
    became: Any = REFUND_IS[status]
    if refund.message:
        became = _("%(what)s (%(why)s)") % {"what": became, "why": stored_text(refund.message)}
    return status in {RefundStatus.SUCCEEDED, RefundStatus.PROCESSING}, outcome_of(name, became)


def _trouble_at(account: str, call: Callable[[], object]) -> str:
    """Call the provider; without an answer, return the reason, as the middle of a sentence."""
    try:
        call()
    except ProviderError as error:
        trouble: Any = _WHY.get(type(error), gettext_lazy("gave no usable answer"))
        if isinstance(error, ProviderRejected):  # the provider's words about it
            trouble = _("%(what)s (%(why)s)") % {"what": trouble, "why": error}
        return f"{account_name(account)} {trouble}"
    return ""


def _sentence(text: str) -> str:
    """Add a full stop, unless the text ends with such a sign."""
    return text if text.endswith((".", "!", "?", "…", "。", "！", "？")) else _("%(what)s.") % {"what": text}


def _announce(row: models.Model, action: str, *, by: Operator) -> None:
    """Commit the line with the operator and reason, before anything is done."""
    with transaction.atomic(durable=True):
        audit(row, action, by=by, result=_("begun."))
