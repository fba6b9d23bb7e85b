"""Cases of answers: lost, refused, about something else, from somebody else."""

from collections.abc import Callable
from functools import partial
from itertools import chain, repeat

from idempotency.ids import new_id
from payments.errors import OutcomeUnknown, ProviderError, ProviderUnavailable
from payments.providers.base import RefundStatus, TradeStatus
from payments.providers.plugin import Capability
from payments.testing.bench import AMOUNT_MINOR, MOVED, Bench, Opened
from payments.testing.relay import Behaviour, Reply, losing, saying
from payments.testing.verdicts import must, proves_nothing, unless_unknown


def wrong_number(bench: Bench) -> None:
    """A genuine answer about another trade, or another refund, is no answer about ours."""
    other, ours = bench.paid(), bench.paid()
    theirs, number = new_id().hex, new_id().hex
    of_theirs, of_ours = _calls(bench, other, theirs), _calls(bench, ours, number)
    for what in [name for name in of_theirs if name != "close"]:
        of_theirs[what]()
        with bench.relay.behaving(saying(bench.relay.last)):
            proves_nothing(of_ours[what], what=what, after="an answer about another number")


def answers_lost(bench: Bench) -> None:
    """A call whose answer is lost is unknown; asked again, it moves nothing twice."""
    closing, trade, number = bench.opened(), bench.new(), new_id().hex
    before = bench.relay.calls
    with bench.relay.behaving(losing):
        answered = unless_unknown(lambda: bench.provider.create(**trade.wanted))
    must(not answered or bench.relay.calls == before, "create returned although its answer was lost")
    bench.create(trade)
    must(bench.shopper_pays(trade), "a trade that was opened again after a lost answer cannot be paid")
    if bench.query(trade).status is TradeStatus.APPROVED:
        with bench.relay.behaving(losing):
            captured = unless_unknown(lambda: bench.provider.capture(**trade.names))
        must(not captured, "capture returned although its answer was lost")
    must(bench.take(trade).status is TradeStatus.PAID, "a paid trade must be PAID")
    asked = partial(bench.refund, trade, number, bench.part_minor)
    with bench.relay.behaving(losing):
        must(not unless_unknown(asked), "refund returned although its answer was lost")
    must(bench.query_refund(trade, number).status in MOVED, "the query does not know a refund that was made")
    must(asked().status in MOVED, "a refund that was made is refused when asked again")
    must(bench.refunded(trade) == bench.part_minor, "a refund moved money twice after its answer was lost")
    with bench.relay.behaving(losing):
        unless_unknown(lambda: bench.close_trade(closing))
    closed = bench.close_trade(closing).status is TradeStatus.CLOSED
    must(closed, "a close whose answer was lost cannot be repeated")


def refused_questions(bench: Bench) -> None:
    """A question that fails says nothing about the command before it."""
    trade = bench.paid()
    number = new_id().hex
    calls = _calls(bench, trade, number)
    for what, call in calls.items():
        for status in (500, 503, 429):
            with bench.relay.behaving(saying(Reply(status=status, body=b"busy"))):
                proves_nothing(call, what=what, after=f"a bare {status}")
    for what, command in (
        ("close", partial(bench.close_trade, trade)),
        ("refund", partial(bench.refund, trade, number, 2 * AMOUNT_MINOR)),
    ):
        if what not in calls:
            continue
        with bench.relay.behaving(_failing_after_one()):
            try:
                result = command()
            except (ProviderError, ValueError) as error:
                refusal = what == "close" and not isinstance(error, OutcomeUnknown | ProviderUnavailable)
                must(not refusal, "a refused close whose question fails must be unknown, for it may be paid")
            else:
                known = (TradeStatus.PAID, RefundStatus.FAILED, RefundStatus.UNFUNDED)
                must(result.status in known, f"{what} returned {result.status} although it was refused")


def foreign_answers(bench: Bench) -> None:
    """Require that a foreign answer, such as a captive portal's page, proves nothing."""
    trade = bench.paid()
    html = {"Content-Type": "text/html"}
    strange = [
        *(Reply(status=status, body=b"<html>Sign in</html>", headers=html) for status in (200, 302, 403, 404)),
        *(
            Reply(status=200, body=body, headers={"Content-Type": "application/json"})
            for body in (b"{}", b"[]", b"null", b'{"id": ', b"")
        ),
    ]
    for reply in strange:
        for what, call in _calls(bench, trade, new_id().hex).items():
            with bench.relay.behaving(saying(reply)):
                proves_nothing(call, what=what, after=f"a {reply.status} with {reply.body.decode() or 'nothing'}")
    for what, call in _calls(bench, trade, new_id().hex).items():
        with bench.relay.behaving(saying(None)):
            proves_nothing(call, what=what, after="no answer")


def _calls(bench: Bench, trade: Opened, number: str) -> dict[str, Callable[[], object]]:
    """List the calls about a trade and a refund that the channel can make."""
    calls: dict[str, Callable[[], object]] = {"query": partial(bench.query, trade)}
    if bench.can(Capability.REFUND):
        calls["refund"] = partial(bench.refund, trade, number, bench.part_minor)
        calls["query_refund"] = partial(bench.query_refund, trade, number)
    if bench.can(Capability.CLOSE):
        calls["close"] = partial(bench.close_trade, trade)
    return calls


def _failing_after_one() -> Behaviour:
    fails = chain([False], repeat(True))
    return lambda method, forward: Reply(status=500) if next(fails) else forward()
