"""Cases of notifications: copied, late, in another order, wrong, changed, old."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta

from idempotency.ids import new_id
from payments.errors import NotificationMalformed, ProviderError, SignatureInvalid
from payments.providers.base import FactKind
from payments.providers.plugin import Refusal
from payments.testing.bench import AMOUNT_MINOR, COPIES, Bench, Opened, Received
from payments.testing.relay import Reply
from payments.testing.verdicts import Broken, Skipped, money, must


def duplicates(bench: Bench) -> None:
    """Require one id and one fact of all copies of a notification, each perhaps signed afresh."""
    trade = bench.paid(copies=COPIES)
    notices = [bench.received(trade).notice for _ in range(COPIES)]
    must(len({notice.notification_id for notice in notices}) == 1, "copies of a notification have different ids")
    must(all(notice == notices[0] for notice in notices), "copies of a notification say different things")


def acknowledged(bench: Bench) -> None:
    """Require that what `acknowledge` takes is not sent again, and what it refuses is."""
    taken = bench.paid()
    bench.received(taken)
    if not _is_sent_again(bench, after=Reply(status=500)):
        raise Skipped("the simulator sends nothing again")
    refused = bench.acknowledgement(Refusal(status=503, message="later"))
    comes_again = _is_sent_again(bench, after=refused)
    # by now it would have come again, before the others
    must(bench.copies_of[taken.number] == 1, "the provider sends again what `acknowledge` has taken")
    must(comes_again, "the provider takes what `acknowledge` has refused for done, and does not send it again")


def _is_sent_again(bench: Bench, *, after: Reply) -> bool:
    with bench.endpoint.answering(after):
        trade = bench.paid()
        bench.received(trade)
    with suppress(Broken):
        return bool(bench.received(trade))
    return False


def delayed(bench: Bench) -> None:
    """A notification after the query states the same fact, so that it counts once."""
    trade = bench.paid()
    same = money(bench.received(trade).fact()) == money(bench.paid_fact(trade))
    must(same, "the notification and the query state different facts of one payment, so it would count twice")


def reordered(bench: Bench) -> None:
    """A refund's notification before the payment's changes neither."""
    trade, number = bench.paid(), new_id().hex
    paid = bench.received(trade)
    bench.refund(trade, number)
    refunded = bench.received(trade, FactKind.REFUNDED)
    for letter in (refunded, paid):
        same = bench.read(letter.headers, letter.body) == letter.notice
        must(same, "a notification reads differently after another one")
    ids = {letter.notice.notification_id for letter in (refunded, paid)}
    must(len(ids) == 2, "a refund's notification has the id of the payment's, so it would pass for a copy")
    back = refunded.fact(FactKind.REFUNDED)
    must(back.amount_minor == AMOUNT_MINOR, "the notification of a refund states another amount")
    must(back.is_whole or back.out_refund_no == number, "the notification of a refund does not carry our number")
    (asked,) = bench.query_refund(trade, number).facts
    same = back.is_whole or money(back) == money(asked)
    must(same, "notification and query state different facts of one refund")


def early(bench: Bench) -> None:
    """The notification may come before the answer to `create`."""
    trade = bench.new()
    found: Future[Received | None] = Future()

    def paid_meanwhile() -> Received | None:
        charged = bench.shopper_pays(trade) and bench.charge(trade).paid_minor
        return bench.received(trade) if charged else None

    def paying(method: str, forward: Callable[[], Reply]) -> Reply | None:
        reply = forward()
        if not found.done():  # the first call is `create`
            try:
                found.set_result(paid_meanwhile())
            except Exception as error:
                found.set_exception(error)
        return reply

    with bench.relay.behaving(paying):
        bench.create(trade)
    letter = found.result() if found.done() else None
    if letter is None:
        raise Skipped("nobody can pay here before `create` has answered")
    must(money(letter.fact()) == money(bench.paid_fact(trade)), "an early notification states another fact")


def wrong_amount(bench: Bench) -> None:
    """Another amount than was asked for is stated as it is."""
    trade = _mistaken(bench, "amount")
    charged_minor = bench.charge(trade).paid_minor
    must(charged_minor != AMOUNT_MINOR, "the simulator charged the right amount")
    for fact in (bench.received(trade).fact(), bench.paid_fact(trade)):
        stated = fact.amount_minor == charged_minor
        must(stated, "a fact states the amount that was asked, not what was charged")


def wrong_currency(bench: Bench) -> None:
    """Another currency than was asked for is stated as it is."""
    trade = _mistaken(bench, "currency")
    charge = bench.charge(trade)
    must(charge.currency != trade.currency, "the simulator charged the right currency")
    for fact in (bench.received(trade).fact(), bench.paid_fact(trade)):
        must(fact.currency == charge.currency, "a fact states the currency that was asked, not what was charged")


def wrong_merchant(bench: Bench) -> None:
    """Money that went to another account is stated as that one's."""
    trade = bench.opened()
    _must_make(bench, "merchant")
    bench.pay(trade, mistake="merchant")
    with suppress(ProviderError):
        bench.take(trade)  # of a stranger's trade it may know nothing
    seller = bench.received(trade).fact().merchant
    must(seller != bench.provider.merchant, "the fact names us, but the money went to another merchant")
    must(seller == bench.charge(trade).merchant, "the fact names a third merchant")


def forged(bench: Bench) -> None:
    """A notification that is changed, or that nobody signed, is refused, and not acknowledged."""
    letter = bench.received(bench.paid())
    step = max(1, len(letter.body) // 40)
    for place in range(0, len(letter.body), step):
        changed = letter.body[:place] + bytes([letter.body[place] ^ 1]) + letter.body[place + 1 :]
        _refuse(bench, letter.headers, changed, unless=letter.notice)
    _refuse(bench, letter.headers, letter.body + b" ", unless=letter.notice)
    for body in (b"", b"{}", b"\xff", letter.body[: len(letter.body) // 2]):
        _refuse(bench, letter.headers, body)
    taken, refused = map(bench.plugin.acknowledge, (None, Refusal(status=503, message="")))
    differs = taken.status in range(200, 300) and taken != refused
    must(differs, "`acknowledge` must answer 2xx to what was taken, and otherwise to what was not")
    for name in letter.headers:
        others = {other: value for other, value in letter.headers.items() if other != name}
        _refuse(bench, others, letter.body, unless=letter.notice)
        _refuse(bench, {**others, name: "1"}, letter.body, unless=letter.notice)
    _refuse(bench, {}, letter.body, unless=letter.notice)


def stale(bench: Bench) -> None:
    """A genuine notification that somebody held back for too long is refused."""
    limit = bench.simulator.stale_after
    if limit is None:
        raise Skipped("its notifications carry no signed time")
    letter = bench.received(bench.paid())
    for age in (limit, -limit - timedelta(seconds=60)):
        try:
            bench.read(letter.headers, letter.body, age=age)
        except SignatureInvalid:
            continue
        raise Broken(f"a notification signed {age.total_seconds():.0f} s ago was taken")


def _must_make(bench: Bench, mistake: str) -> None:
    if mistake not in bench.simulator.mistakes:
        raise Skipped(f"the simulator cannot get the {mistake} wrong")


def _mistaken(bench: Bench, mistake: str) -> Opened:
    _must_make(bench, mistake)
    return bench.paid(mistake=mistake)


def _refuse(bench: Bench, headers: dict[str, str], body: bytes, *, unless: object = None) -> None:
    """Require a refusal, unless the change, as of a letter's case, changes nothing."""
    try:
        read = bench.read(headers, body)
    except (SignatureInvalid, NotificationMalformed):
        return
    must(read == unless, "a notification that was changed on the way was taken")
