"""Where a payment stands: its row, under lock or not, its attempts, and every fact about them. Reads only."""

import uuid
from dataclasses import dataclass
from typing import Any

from django.db.models import Sum

from idempotency.postgres.statements import Statement, send
from payments.channels import configured as channels
from payments.models import Attempt, Observation, Payment, Refund
from payments.providers.base import Fact, FactKind
from payments.settlement.known import BY_HAND, KnownAttempt, KnownFact, KnownPayment, columns
from payments.states import OPEN_REFUNDS, AttemptStatus, PaymentStatus, derive_status

# read by hand and not through the ORM's compiler, which would take longer than everything else about a fact
_PAYMENT, _ATTEMPT, _FACT = columns(KnownPayment), columns(KnownAttempt), columns(KnownFact)

_ITS_PAYMENT = f"(SELECT payment_id FROM {Attempt._meta.db_table} WHERE id = %s)"  # noqa: S608  our own names
_LOCK = f"""
SELECT {", ".join(_PAYMENT)} FROM {Payment._meta.db_table}
WHERE id = (SELECT payment_id FROM {Attempt._meta.db_table} WHERE id = %s AND channel = %s)
FOR NO KEY UPDATE
"""  # noqa: S608
_ATTEMPTS = f"""
SELECT {", ".join(_ATTEMPT)} FROM {Attempt._meta.db_table} WHERE payment_id = {{which}} ORDER BY id
"""  # noqa: S608
_IDENTITY = "channel = %s AND merchant = %s AND provider_txn_id = %s AND kind = %s"
# found by one value in one index after the other. A session keeps the plan: given the choice between indexes and
# the whole table, as by an OR or a list of attempts, it goes on reading all of a table that was empty when it was
# planned
_FACTS = f"""
SELECT fact.* FROM {Attempt._meta.db_table} AS attempt CROSS JOIN LATERAL (
    SELECT {", ".join(_FACT)} FROM {Observation._meta.db_table} WHERE attempt_id = attempt.id OFFSET 0
) AS fact
WHERE attempt.payment_id = {{which}}{{or_that}}
ORDER BY id
"""  # noqa: S608
_UNTOLD = f"""
SELECT {", ".join(f"payment.{name}" for name in _PAYMENT)}, {", ".join(f"attempt.{name}" for name in _ATTEMPT)}
FROM {Attempt._meta.db_table} AS attempt
JOIN {Payment._meta.db_table} AS payment ON payment.id = attempt.payment_id
WHERE attempt.id = %s AND attempt.channel = %s AND payment.paid_minor = 0 AND NOT EXISTS (
    SELECT FROM {Attempt._meta.db_table} AS other
    WHERE other.payment_id = attempt.payment_id AND other.id <> attempt.id OFFSET 0
)
"""  # noqa: S608
_OR_THAT = f" UNION SELECT {', '.join(_FACT)} FROM {Observation._meta.db_table} WHERE {_IDENTITY}"  # noqa: S608


@dataclass(slots=True, kw_only=True)
class Position:
    """Read after the payment's row was locked, so nobody changes any of it before the caller commits; or not.

    Attributes:
        is_locked: False: it was not locked, and nobody has looked for facts. What is decided on it is good only if
            it is written under the lock, and `recording.settle_untold` with it.
        attempts: by their ids, all of the payment's.
        facts: about these attempts; and the one with the identity that was asked for, whosever it is.
    """

    payment: KnownPayment
    attempts: dict[uuid.UUID, KnownAttempt]
    facts: list[KnownFact]
    is_locked: bool = True

    def find(self, fact: Fact) -> KnownFact | None:
        """The kept fact of the same identity."""
        wanted = (fact.channel, fact.merchant, fact.provider_txn_id, fact.kind.value)
        for kept in self.facts:
            if (kept.channel, kept.merchant, kept.provider_txn_id, kept.kind) == wanted:
                return kept
        return None

    def attempt_of(self, fact: Fact) -> KnownAttempt:
        """The one that the fact names."""
        return self.attempts[uuid.UUID(hex=fact.out_trade_no)]

    def of(self, attempt: KnownAttempt, kind: FactKind) -> list[KnownFact]:
        """The attempt's facts of that kind."""
        return [fact for fact in self.facts if fact.attempt_id == attempt.id and fact.kind == kind]

    def confirms(self, attempt: KnownAttempt, fact: Fact | KnownFact) -> KnownFact | None:
        """The operator's word of the money that the provider tells with this fact; None if it is other money.

        He tells it under our number. So it is the first that the provider tells of that number; a further one, as
        Stripe may take, is other money.
        """
        told = [one for one in self.of(attempt, FactKind(fact.kind)) if one.out_refund_no == fact.out_refund_no]
        by_hand = next((one for one in told if one.source == BY_HAND), None)
        its_own = (one for one in told if one.source != BY_HAND and one.merchant == attempt.merchant)
        first = next(its_own, fact)
        is_it = fact.merchant == attempt.merchant and fact.provider_txn_id == first.provider_txn_id
        if by_hand is None or not is_it or fact.provider_txn_id == by_hand.provider_txn_id:
            return None
        return by_hand

    def charges(self, attempt: KnownAttempt, *, paid_txn_id: str = "") -> list[KnownFact]:
        """What it was paid with; of several charges, that of the number, or the operator's word of it.

        Empty where a number may be charged again and the named charge is not known yet.
        """
        charges = [fact for fact in self.of(attempt, FactKind.PAID) if fact.merchant == attempt.merchant]
        named = [self.confirms(attempt, fact) or fact for fact in charges if fact.provider_txn_id == paid_txn_id]
        by_hand_alone = all(fact.source == BY_HAND for fact in charges)  # its number is not known yet
        if named or (paid_txn_id and not by_hand_alone and channels.charges_again(attempt.channel)):
            return named
        return charges

    def uncounted_refunds(self, attempt: KnownAttempt) -> list[KnownFact]:
        """Refunds that came before their payment, if that counts; those of another account, currency or charge
        never do. Of what an operator told to be paid nobody knows the number yet.
        """
        charges = [fact for fact in self.of(attempt, FactKind.PAID) if fact.credited]
        numbers = {"", *(fact.provider_txn_id for fact in charges)}
        by_hand = any(fact.source == BY_HAND for fact in charges)
        return [
            fact
            for fact in self.of(attempt, FactKind.REFUNDED)
            if charges
            and not fact.credited
            and (fact.merchant, fact.currency) == (attempt.merchant, attempt.currency)
            and (fact.paid_txn_id in numbers or (by_hand and self.takes_back_what_counts(attempt, fact)))
            and self.confirms(attempt, fact) is None
        ]

    def takes_back_what_counts(self, attempt: KnownAttempt, refund: Fact | KnownFact) -> bool:
        """Whether a refund is of a charge that is credited; of two charges in two currencies, that in its own."""
        charges = self.charges(attempt, paid_txn_id=refund.paid_txn_id)
        return any(charge.credited and charge.currency == refund.currency for charge in charges)

    def went_back_whole(self, attempt: KnownAttempt) -> bool:
        """Whether it was told that all went back (`Fact.is_whole`): then any single refund is part of that."""
        refunds = self.of(attempt, FactKind.REFUNDED)
        return any((one.provider_txn_id, one.out_refund_no) == (attempt.out_trade_no, "") for one in refunds)

    def left_minor(self, attempt: KnownAttempt, whole: Fact) -> int:
        """What of a credited charge went back by refunds that nobody told of, now that all of it has; 0 where a
        refund of ours is open, of which only its own answer tells how it stands.
        """
        paid_minor = self.total_minor(FactKind.PAID)
        counts = self.takes_back_what_counts(attempt, whole) and whole.amount_minor == paid_minor
        return paid_minor - self.total_minor(FactKind.REFUNDED) if counts and not self.reserved_minor() else 0

    def total_minor(self, kind: FactKind) -> int:
        """The sum of what counts."""
        return sum(
            fact.amount_minor
            for fact in self.facts
            if fact.kind == kind and fact.credited and fact.attempt_id in self.attempts
        )

    def reserved_minor(self) -> int:
        """The sum of the payer's refunds that are not over; what our policy gives back was never credited."""
        if not self.payment.paid_minor:
            return 0  # before anything was credited, nothing could be reserved of it
        statuses = [status.value for status in OPEN_REFUNDS]
        found = Refund.objects.filter(payment=self.payment.id, anomaly__isnull=True, status__in=statuses)
        return found.aggregate(total=Sum("amount_minor"))["total"] or 0

    def status(self, *, paid_minor: int, refunded_minor: int) -> PaymentStatus:
        """What totals and attempts add up to."""
        statuses = [AttemptStatus(attempt.status) for attempt in self.attempts.values()]
        return derive_status(paid_minor=paid_minor, refunded_minor=refunded_minor, attempts=statuses)


def lock(fact: Fact) -> Position | None:
    """Lock the payment that the fact is about, and read where it stands; None if its number is not ours.

    Transaction: needs the caller's.
    """
    attempt_id = as_id(fact.out_trade_no)
    if attempt_id is None:
        return None
    found, *about = send(
        Statement(_LOCK, [attempt_id, fact.channel]),
        *_reads(_ITS_PAYMENT, attempt_id, fact.channel, fact.merchant, fact.provider_txn_id, fact.kind.value),
    )
    return _position(KnownPayment(*found[0]), about) if found else None


def untold(fact: Fact) -> Statement | None:
    """What reads, and does not lock, where the payment stands that the fact is about: no row (for `as_untold`) if
    it is paid, or has another attempt. None if its number is not ours.
    """
    attempt_id = as_id(fact.out_trade_no)
    return None if attempt_id is None else Statement(_UNTOLD, [attempt_id, fact.channel])


def as_untold(rows: list[tuple[Any, ...]]) -> Position | None:
    """What `untold` has found."""
    if not rows:
        return None
    known = len(_PAYMENT)
    attempt = KnownAttempt(*rows[0][known:])
    return Position(
        payment=KnownPayment(*rows[0][:known]), attempts={attempt.id: attempt}, facts=[], is_locked=False
    )


def read(payment: KnownPayment) -> Position:
    """Where a payment stands whose row the caller has locked."""
    return _position(payment, send(*_reads("%s", payment.id)))


def _reads(which: str, payment: uuid.UUID, *also: str) -> list[Statement]:
    """What reads the attempts of a payment, and the facts about them; `also` the fact of an identity.

    Args:
        which: SQL of the payment's id, with a placeholder for `payment`.
    """
    or_that = _OR_THAT if also else ""
    return [
        Statement(_ATTEMPTS.format(which=which), [payment]),
        Statement(_FACTS.format(which=which, or_that=or_that), [payment, *also]),
    ]


def _position(payment: KnownPayment, about: list[list[tuple[Any, ...]]]) -> Position:
    attempts, facts = about
    return Position(
        payment=payment,
        attempts={row[0]: KnownAttempt(*row) for row in attempts},
        facts=[KnownFact(*fact) for fact in facts],
    )


def as_id(number: str) -> uuid.UUID | None:
    """Our own 32-character number as the key it stands for; None for anybody else's."""
    try:
        return uuid.UUID(hex=number) if len(number) == 32 else None
    except ValueError:
        return None
