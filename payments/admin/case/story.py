"""A payment in sentences, from frozen facts: no database, no clock, no request."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from idempotency.admin.labels import utc
from payments.channels.accounts import account_name
from payments.display import money
from payments.states import OPEN_REFUNDS, AnomalyKind, AttemptStatus, RefundStatus

_CHARGED = {
    AnomalyKind.PAID_TWICE: gettext_noop("Charged twice: %(money)s by %(channel)s at %(at)s"),
    AnomalyKind.PAID_AFTER_CLOSE: gettext_noop("Paid too late: %(money)s by %(channel)s at %(at)s"),
    AnomalyKind.AMOUNT_MISMATCH: gettext_noop(
        "Paid in another amount: %(money)s instead of %(asked)s by %(channel)s at %(at)s"
    ),
}
_RETURNED = {
    RefundStatus.SUCCEEDED: gettext_noop("Refunded: %(money)s by %(channel)s at %(at)s."),
    RefundStatus.REQUESTED: gettext_noop("On its way back: %(money)s by %(channel)s since %(at)s."),
    RefundStatus.PROCESSING: gettext_noop("On its way back: %(money)s by %(channel)s since %(at)s."),
    RefundStatus.UNCERTAIN: gettext_noop("Refund without an answer: %(money)s by %(channel)s. %(next)s"),
    RefundStatus.FAILED: gettext_noop("Refund refused: %(money)s by %(channel)s. %(message)s"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """An amount at a provider, and its time: of the charge or refund, or the end of an attempt."""

    account: str
    amount_minor: int
    currency: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Return(Money):
    """A refund; `at` is when the money went back, or else when it was asked for."""

    status: RefundStatus
    message: str = ""
    due: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge(Money):
    """Money that came in. `kind`: the anomaly that kept it uncredited; `back`: its refund."""

    credited: bool = True
    kind: AnomalyKind | None = None
    back: Return | None = None
    needs_approval: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade(Money):
    """An attempt; `at` is when it expires, `due` when the timer asks next."""

    status: AttemptStatus
    message: str = ""
    due: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disputed(Money):
    """A dispute; its amount is what was taken and not returned, `at` is when we heard of it."""

    status: str = ""
    reason: str = ""
    respond_by: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Everything known about a payment's money."""

    amount_minor: int
    currency: str
    opened_at: datetime
    charges: tuple[Charge, ...] = ()
    returns: tuple[Return, ...] = ()  # those of credited money
    trades: tuple[Trade, ...] = ()
    disputes: tuple[Disputed, ...] = ()


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence; `alarm` if its matter is not over."""

    text: str
    alarm: bool = False


@dataclass(frozen=True, slots=True)
class Sums:
    """Money of one currency, in minor units: received, refunded, disputed, kept."""

    currency: str
    received_minor: int
    refunded_minor: int
    on_its_way_minor: int
    taken_minor: int

    @property
    def kept_minor(self) -> int:
        return self.received_minor - self.refunded_minor - self.taken_minor


def sentences(case: Case) -> list[Sentence]:
    """Describe the payment, in order of time; what is open comes last."""
    moved = [(charge.at, _of_charge(charge, case)) for charge in case.charges]
    moved += [(one.at, _of_return(one, case)) for one in case.returns]
    moved += [(one.at, _of_dispute(one, case)) for one in case.disputes]
    found = [sentence for _at, sentence in sorted(moved, key=lambda pair: pair[0])]
    found += [_of_trade(trade, case) for trade in case.trades if _is_of_interest(trade, case)]
    return found or [Sentence(_("Nothing was charged."))]


def sums(case: Case) -> list[Sums]:
    """Add up what came in and went back, by currency; the payment's own first."""
    returns = [*case.returns, *(charge.back for charge in case.charges if charge.back)]
    moved = [(charge.currency, "received", charge.amount_minor) for charge in case.charges]
    moved += [(one.currency, one.status, one.amount_minor) for one in returns]
    moved += [(one.currency, "taken", one.amount_minor) for one in case.disputes]
    found = Counter[tuple[str, str]]()
    for currency, what, amount_minor in moved:
        found[currency, what] += amount_minor
    return [
        Sums(
            currency=currency,
            received_minor=found[currency, "received"],
            refunded_minor=found[currency, RefundStatus.SUCCEEDED],
            on_its_way_minor=sum(found[currency, status] for status in OPEN_REFUNDS),
            taken_minor=found[currency, "taken"],
        )
        for currency in dict.fromkeys([case.currency, *(one[0] for one in moved)])
    ]


def _of_charge(charge: Charge, case: Case) -> Sentence:
    about = _about(charge, case)
    if charge.credited:
        return Sentence(_("%(what)s.") % {"what": _("Paid: %(money)s by %(channel)s at %(at)s") % about})
    template = gettext_noop("Received, not counted: %(money)s by %(channel)s at %(at)s")
    if charge.kind is not None:
        template = _CHARGED.get(charge.kind, template)
    what = _(template) % about
    is_back = charge.back is not None and charge.back.status == RefundStatus.SUCCEEDED
    return Sentence(_("%(what)s, %(end)s.") % {"what": what, "end": _end(charge)}, alarm=not is_back)


def _end(charge: Charge) -> str:
    """Say what became of money that was not credited."""
    if charge.back is None:
        return _("the refund waits for approval") if charge.needs_approval else _("not refunded")
    match charge.back.status:
        case RefundStatus.SUCCEEDED:
            return _("refunded %(after)s later") % {"after": _after(charge.at, charge.back.at)}
        case RefundStatus.FAILED:
            return _("the refund was refused (%(message)s)") % {"message": charge.back.message or "-"}
        case RefundStatus.UNCERTAIN:
            return _("the refund has no answer yet and is asked about again")
    return _("the refund is on its way")


def _of_return(one: Return, case: Case) -> Sentence:
    text = _(_RETURNED[one.status]) % {**_about(one, case), "next": _next(one, case), "message": one.message}
    return Sentence(text.strip(), alarm=one.status != RefundStatus.SUCCEEDED)


def _of_dispute(one: Disputed, case: Case) -> Sentence:
    about = {**_about(one, case), "status": _(one.status) if one.status else "-", "reason": one.reason or "-"}
    if one.amount_minor < 0:  # a return under its own number
        about["money"] = money(-one.amount_minor, one.currency)
        return Sentence(_("Returned by %(channel)s at %(at)s: %(money)s that it had taken back.") % about)
    text = _("Disputed by %(channel)s at %(at)s: %(status)s (%(reason)s), %(money)s is taken back.") % about
    due = _("To be answered by %(due)s.") % {"due": _time(one.respond_by, case)} if one.respond_by else ""
    return Sentence(f"{text} {due}".strip(), alarm=bool(due or one.amount_minor))


def _of_trade(trade: Trade, case: Case) -> Sentence:
    about = {**_about(trade, case), "next": _next(trade, case), "message": trade.message}
    match trade.status:
        case AttemptStatus.UNCERTAIN:
            text = _("No answer: %(channel)s may have charged %(money)s. %(next)s") % about
            return Sentence(text, alarm=True)
        case AttemptStatus.FAILED:
            return Sentence((_("Refused: %(channel)s did not open %(money)s. %(message)s") % about).strip())
        case _:
            return Sentence(_("Waiting for the shopper: %(money)s by %(channel)s until %(at)s.") % about)


def _is_of_interest(trade: Trade, case: Case) -> bool:
    """Leave out attempts that ended without money, and refused ones where money came in."""
    if trade.status in {AttemptStatus.CLOSED, AttemptStatus.SUCCEEDED}:
        return False
    return not case.charges or trade.status != AttemptStatus.FAILED


def _next(one: Return | Trade, case: Case) -> str:
    """Say what happens by itself."""
    if one.due is None:
        return _("It is not asked again by itself; record the outcome.")
    return _("It is asked again at %(at)s; nothing moves twice.") % {"at": _time(one.due, case)}


def _about(one: Money, case: Case) -> dict[str, str]:
    return {
        "money": money(one.amount_minor, one.currency),
        "asked": money(case.amount_minor, case.currency),
        "channel": account_name(one.account),
        "at": _time(one.at, case),
    }


def _time(at: datetime, case: Case) -> str:
    """Write the time in UTC, with the day where it is not the payment's first."""
    day, time = utc(at).split()
    return f"{time} UTC" if day in utc(case.opened_at) else f"{day} {time} UTC"


def _after(begin: datetime, end: datetime) -> str:
    seconds = (end - begin).total_seconds()
    return _("%(seconds)s s") % {"seconds": f"{seconds:.1f}"} if seconds < 60 else timesince(begin, end, depth=1)
