"""Cases of money: paid, refunded, closed, billed, and each of it once."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

from idempotency.ids import new_id
from payments.errors import OutcomeUnknown, ProviderError, ProviderRejected, ProviderUnavailable
from payments.providers.base import BillLine, Fact, FactKind, RefundStatus, TradeStatus
from payments.providers.disputes import DisputeStatus
from payments.providers.plugin import Capability
from payments.testing.bench import AMOUNT_MINOR, COPIES, MOVED, PART_MINOR, Bench, Opened
from payments.testing.relay import meeting
from payments.testing.verdicts import Skipped, must

T = TypeVar("T")

THREADS = 4
TIMES = 5  # that different trades are asked about at once: who comes first is chance


def a_payment(bench: Bench) -> None:
    """Go from unknown to paid."""
    trade = bench.new()
    must(bench.query(trade).status is TradeStatus.NOT_FOUND, "a number that nobody used must be NOT_FOUND")
    kind, plugin = bench.create(trade).type, bench.plugin
    shown = kind in plugin.actions and plugin.renderer(kind)
    must(bool(shown), f"its next action {kind!r} is not in `Plugin.actions`, or has no renderer")
    must(bench.query(trade).status is not TradeStatus.PAID, "a trade that nobody paid is PAID")
    bench.pay(trade)
    must(bench.take(trade).status is TradeStatus.PAID, "a paid trade must be PAID")
    fact, charge = bench.paid_fact(trade), bench.charge(trade)
    must(fact.channel == bench.provider.channel, "its fact names another channel")
    must(fact.merchant == bench.provider.merchant, "its fact names another merchant than `Provider.merchant`")
    must(fact.out_trade_no == trade.number, "its fact does not carry our number")
    must(fact.amount_minor == charge.paid_minor == AMOUNT_MINOR, "its fact's amount is not what was charged")
    must(fact.currency == charge.currency, "its fact's currency is not the one that was charged")
    other = bench.paid_fact(bench.paid()).provider_txn_id
    must(fact.provider_txn_id != other, "two payments have one `provider_txn_id`, so the second would not count")


def asking_moves_nothing(bench: Bench) -> None:
    """Questions about a payment and a refund, however often, leave the money where it is."""
    trade, number = bench.opened(), new_id().hex
    bench.pay(trade)
    before = bench.charge(trade)
    for _ in range(2):
        asked = bench.query(trade)
        bench.query_refund(trade, number)
        must(bench.charge(trade) == before, "a question moved money")
    known = TradeStatus.PAID if before.paid_minor else TradeStatus.APPROVED
    must(asked.status is known, f"a trade that the shopper paid is {asked.status}, not {known}")
    must(bench.take(trade).status is TradeStatus.PAID, "a trade cannot be paid any more once it was asked about")


def refunds(bench: Bench) -> None:
    """Two parts and no third; each number moves money once."""
    trade, one = bench.paid(), new_id().hex
    before = bench.query_refund(trade, one)
    must(before.status is RefundStatus.NOT_FOUND, "a refund that nobody asked for must be NOT_FOUND")
    for _ in range(2):
        result = bench.refund(trade, one, PART_MINOR)
        must(result.status in MOVED, f"a refund of a part is {result.status}")
    must(bench.refunded(trade) == PART_MINOR, "the same refund, asked for twice, moved money twice")
    facts = bench.query_refund(trade, one).facts
    must(bool(facts), "the query of a refund that was made states no fact")
    (fact,) = facts
    ours = (fact.kind, fact.out_refund_no) == (FactKind.REFUNDED, one)
    must(ours, "a refund's fact must carry our number of it")
    own = (fact.amount_minor, fact.is_whole) == (PART_MINOR, False)
    must(own, "a refund's fact must state its own amount, not a sum")
    rest = new_id().hex
    bench.refund(trade, rest, AMOUNT_MINOR - PART_MINOR)
    others = {other.provider_txn_id for other in bench.query_refund(trade, rest).facts}
    must(
        fact.provider_txn_id not in others, "two refunds have one `provider_txn_id`, so the second would not count"
    )
    try:
        more = bench.refund(trade, new_id().hex, PART_MINOR)
        must(more.status not in MOVED, "more was given back than had been paid")
    except ProviderError as error:
        refused, name = isinstance(error, ProviderRejected), type(error).__name__
        must(refused, f"a refund that is refused raises {name}, so it would be asked for again for ever")
    must(bench.refunded(trade) == AMOUNT_MINOR, "what went back is not the sum of the refunds")
    must(bench.query(trade).status is TradeStatus.PAID, "a refunded trade was paid, so it must stay PAID")


def parallel(bench: Bench) -> None:
    """The same call at the same instant takes effect once."""
    trade = bench.new()
    bench.create(trade)
    _at_once(lambda: bench.create(trade))
    must(bench.shopper_pays(trade, copies=COPIES), "its trade, opened several times, cannot be paid")
    _at_once(lambda: bench.take(trade))
    must(bench.charge(trade).paid_minor == AMOUNT_MINOR, "one number was charged more than once")
    letter = bench.received(trade)
    read = _at_once(lambda: bench.read(letter.headers, letter.body))
    alike = all(notice == letter.notice for notice in read)
    must(alike, "threads that read one notification read different things")
    number = new_id().hex
    _at_once(lambda: bench.refund(trade, number, bench.part_minor))
    must(bench.refunded(trade) == bench.part_minor, "one refund, asked for by several threads, moved money twice")
    _must_not_mix(bench, [trade, bench.paid()])


def _must_not_mix(bench: Bench, trades: list[Opened]) -> None:
    """Query different trades in threads of which none gets its answer before each has asked."""
    numbers = [bench.paid_fact(trade).provider_txn_id for trade in trades]

    def asked(trade: Opened) -> str:
        with suppress(OutcomeUnknown):
            return bench.paid_fact(trade).provider_txn_id
        return ""

    with ThreadPoolExecutor(len(trades)) as pool:
        for _ in range(TIMES):
            with bench.relay.behaving(meeting(threading.Barrier(len(trades)))):
                found = list(pool.map(asked, trades))
            must(found == numbers, "threads that ask about different trades get each other's answers")


def after_close(bench: Bench) -> None:
    """Closed is closed, twice if asked twice; but money that comes nevertheless is stated."""
    unknown = bench.close_trade(bench.new())
    must(unknown.status is TradeStatus.CLOSED, "a number that the provider never saw must count as CLOSED")
    trade = bench.opened()
    _must_close(bench, trade, "an unpaid trade")
    must(bench.query(trade).status is TradeStatus.CLOSED, "a closed trade must be CLOSED")
    late = bench.shopper_pays(trade, late=True)
    answers = bench.query(trade), bench.close_trade(trade)
    if late and bench.charge(trade).paid_minor:
        must(all(answer.status is TradeStatus.PAID for answer in answers), "money after a close must make it PAID")
    else:
        must(not any(answer.facts[0].amount_minor for answer in answers), "a closed trade states money")
    paid = bench.paid()
    must(bench.close_trade(paid).status is TradeStatus.PAID, "closing a paid trade must say that it is PAID")


def a_void(bench: Bench) -> None:
    """An approved trade is let go by its close, and never captured afterwards."""
    trade = bench.opened()
    bench.pay(trade)
    if bench.query(trade).status is not TradeStatus.APPROVED:
        raise Skipped("no money waits for a capture here")
    bench.needs(Capability.VOID)
    _must_close(bench, trade, "an approved trade")
    captured = bench.provider.capture(**trade.names).status is TradeStatus.CLOSED
    must(captured and bench.query(trade).status is TradeStatus.CLOSED, "a trade that was let go must stay CLOSED")
    must(not bench.charge(trade).paid_minor, "a trade that was let go was charged")


def a_bill(bench: Bench) -> None:
    """The day's bill lists the facts: the same numbers, amounts and currency."""
    bench.needs(Capability.BILL)
    began = datetime.now(bench.provider.zone).date()
    trade, number = bench.paid(), new_id().hex
    bench.refund(trade, number, bench.part_minor)
    facts = [bench.paid_fact(trade), *bench.query_refund(trade, number).facts]
    try:
        listed = _billed(bench, facts)
    except ProviderUnavailable:
        if began == datetime.now(bench.provider.zone).date():
            raise
        a_bill(bench)  # the day has ended meanwhile, and its bill may not be out yet
        return
    lines = sorted(_members(line) for line in listed if line.out_trade_no == trade.number)
    must(len(lines) == len(set(lines)), "the bill lists a line more than once, so its sums are wrong")
    wanted = sorted(map(_members, facts))
    must(lines == wanted, f"the bill lists {lines}, the facts are {wanted}")


def a_dispute(bench: Bench) -> None:
    """A dispute is stated until it ends, and what it took is stated once, as the bill does."""
    bench.needs(Capability.DISPUTE)
    trade = bench.paid()
    trade.charged_as = bench.paid_fact(trade).provider_txn_id
    bench.dispute(trade, DisputeStatus.OPEN)
    opened = bench.received(trade, FactKind.DISPUTED).fact(FactKind.DISPUTED)
    said = opened.dispute
    must(said is not None and opened.occurred_at is not None, "a dispute lacks its `dispute` or its time")
    must(bool(said and said.respond_by), "an open dispute does not say until when to answer")
    must(opened.amount_minor == AMOUNT_MINOR, "a dispute of all that was paid claims another amount")
    bench.dispute(trade, DisputeStatus.LOST)
    facts, awaited = [opened], {str(DisputeStatus.LOST), str(FactKind.TAKEN)}
    while awaited:
        more = bench.received(trade, FactKind.DISPUTED, FactKind.TAKEN).notice.facts
        awaited -= {fact.dispute.status if fact.dispute else fact.kind for fact in more}
        facts += more
    must(len({fact.provider_txn_id for fact in facts if fact.dispute}) == 1, "one dispute has several numbers")
    taken = {_members(fact) for fact in facts if fact.kind is FactKind.TAKEN}
    must(len(taken) == 1, f"one dispute took money once, and the facts are {sorted(taken)}")
    if not bench.can(Capability.BILL):
        return
    numbers = (trade.charged_as, trade.number)
    listed = [line for line in _billed(bench, facts) if line.kind is FactKind.TAKEN]
    lines = [_members(line)[2:] for line in listed if line.paid_txn_id in numbers or line.out_trade_no in numbers]
    must(lines == [fact[2:] for fact in taken], f"the bill lists {lines}, the facts are {sorted(taken)}")


def _billed(bench: Bench, facts: list[Fact]) -> list[BillLine]:
    """Read the bills of the facts' days."""
    days = {fact.occurred_at.astimezone(bench.provider.zone).date() for fact in facts if fact.occurred_at}
    return [line for day in days for line in bench.provider.bill(day=day)]


def _members(moved: Fact | BillLine) -> tuple[str, str, str, int, str]:
    """Return what a fact and its line of the bill share."""
    return moved.kind, moved.out_trade_no, moved.provider_txn_id, moved.amount_minor, moved.currency


def _must_close(bench: Bench, trade: Opened, what: str) -> None:
    for _ in range(2):
        closed = bench.close_trade(trade)
        kinds = [fact.kind for fact in closed.facts]
        must(
            closed.status is TradeStatus.CLOSED and kinds == [FactKind.CLOSED],
            f"closing {what} must be CLOSED with its fact, not {closed.status} with {kinds}",
        )


def _at_once(call: Callable[[], T]) -> list[T]:
    """Return the answers of calls that start together; those that were turned away have none."""
    barrier = threading.Barrier(THREADS)

    def one() -> T | None:
        barrier.wait()
        try:
            return call()
        except ProviderError:
            return None

    with ThreadPoolExecutor(THREADS) as pool:
        answers = [future.result() for future in [pool.submit(one) for _ in range(THREADS)]]
    return [answer for answer in answers if answer is not None]
