"""Ten thousand notifications, three copies of each, shuffled, from four senders to two web processes.

First the proof: every one acknowledged, none lost, none counted twice, and the money in our books equal to what
the sandbox charged, to the last fen. Then the rates, in short rounds that take turns: first copies, and copies,
against a view that commits one INSERT and is measured before and after them. The notifications are signed before
the clock starts, each copy anew, both providers' mixed. No worker runs beside.
"""

import multiprocessing
import os
import random
import socket
import statistics
import tempfile
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections
from django.db.models import Sum
from django.utils import timezone

from bench import servers
from bench.plain_http import ask, post
from bench.report import write
from idempotency.ids import new_id
from payments.models import Anomaly, Attempt, Notification, Observation, Payment
from payments.sandbox import alipay, state, wechat
from payments.settlement.journal import trial_balance
from shop.models import Order

COUNT, COPIES, SENDERS = 10_000, 3, 4
PROCESSES = 2
ROUNDS, ROUND_COUNT = 60, 300  # a machine that is shared runs at another speed a few seconds later
SIGNED_ROUNDS = 6  # at once: meanwhile the servers' part of the machine's caches gets cold
SEED = 20261121

CHANNELS = ("wechat", "alipay")

_fork = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Letter:
    """A request that is ready to be sent.

    Attributes:
        acknowledged: the answer that says it was taken: status and body.
    """

    request: bytes
    acknowledged: tuple[int, bytes]


def run(options: Sequence[str] = ()) -> None:
    """Prove and measure; `--count N` proves with fewer.

    Raises:
        AssertionError: something was lost, or counted twice.
    """
    count = int(options[1]) if options[:1] == ["--count"] else COUNT
    servers.require_own_redis()
    call_command("migrate", verbosity=0)
    with tempfile.TemporaryDirectory() as folder, servers.guarded() as guardian:
        state.open_folder(Path(folder))
        ports = servers.start_shops(guardian, _environment(), name="shop", processes=PROCESSES)
        seconds = _prove(ports, Path(folder), count)
        rates = _rates(ports, Path(folder))
    _report(count, seconds, rates)


def _environment() -> dict[str, str]:
    """The channels with the sandbox's keys; nobody listens at their addresses, and nobody needs to."""
    nowhere = "http://127.0.0.1:1"
    addresses = dict.fromkeys(("WECHAT_API_URL", "ALIPAY_GATEWAY_URL", "STRIPE_API_URL"), nowhere)
    return {**state.keys().settings, **addresses}


def _prove(ports: Sequence[int], folder: Path, count: int) -> float:
    """Send everything; the seconds it took."""
    before = _books()
    charged = _charge(folder, count)
    letters = _sign(folder, [number for number in charged for _ in range(COPIES)])
    random.Random(SEED).shuffle(letters)
    seconds = _send(ports, letters)
    ours = Payment.objects.filter(attempts__in=[uuid.UUID(hex=number) for number in charged])
    assert ours.filter(status="succeeded").count() == count, "a notification was lost"
    assert ours.aggregate(total=Sum("paid_minor"))["total"] == sum(charged.values()), "the money is not equal"
    facts = Observation.objects.filter(attempt__payment__in=ours)
    assert (facts.count(), facts.filter(credited=True).count()) == (count, count), "a fact was counted twice"
    assert Notification.objects.filter(out_trade_no__in=charged).count() == count, "a notification was kept twice"
    assert not Anomaly.objects.filter(payment__in=ours).exists(), "an anomaly was filed"
    assert _books() - before == sum(charged.values()), "the journal is not equal"
    return seconds


def _books() -> int:
    """What the journal says that we have at all providers."""
    return sum(row["debit_minor"] for row in trial_balance() if row["account"].startswith("provider:"))


def _charge(folder: Path, count: int) -> dict[str, int]:
    """Orders with open attempts, and the sandbox's charges for them: our number -> minor units."""
    user, _ = User.objects.get_or_create(username="bench-shopper")
    later = timezone.now() + timedelta(hours=1)
    dice = random.Random(SEED)
    settings = state.keys().settings
    merchants = {"wechat": settings["WECHAT_MCH_ID"], "alipay": settings["ALIPAY_SELLER_ID"]}
    orders, payments, attempts = [], [], []
    for index in range(count):
        amount, channel = dice.randrange(1, 100_000), CHANNELS[index % 2]
        order = Order(id=new_id(), user=user, total_minor=amount, currency="CNY", expires_at=later)
        payment = Payment(order_id=order.id, owner=user, amount_minor=amount, currency="CNY")
        orders.append(order)
        payments.append(payment)
        attempts.append(
            Attempt(
                payment=payment,
                channel=channel,
                merchant=merchants[channel],
                method="native" if channel == "wechat" else "page",
                amount_minor=amount,
                currency="CNY",
                description="Mug",
                status="pending",
                submitted_at=timezone.now(),
                expires_at=later,
            )
        )
    Order.objects.bulk_create(orders, batch_size=2000)
    Payment.objects.bulk_create(payments, batch_size=2000)
    Attempt.objects.bulk_create(attempts, batch_size=2000)
    _charge_in_sandbox(attempts)
    with state.store().write() as connection:
        told = connection.execute(
            "SELECT out_trade_no, charged_minor FROM trades WHERE created_at >= ?",
            [attempts[0].expires_at.timestamp()],
        ).fetchall()
    return dict(told)


def _charge_in_sandbox(attempts: list[Attempt]) -> None:
    """All at once: one transaction of the sandbox's each would take longer than everything else."""
    marked = attempts[0].expires_at.timestamp()  # a time of this batch alone
    rows = [
        (
            attempt.out_trade_no,
            attempt.channel,
            f"4200{attempt.out_trade_no[:24]}",
            attempt.out_trade_no,
            attempt.amount_minor,
            attempt.description,
            "http://127.0.0.1:1",
            "SUCCESS",
            attempt.amount_minor,
            time.time(),
            marked,
        )
        for attempt in attempts
    ]
    with state.store().write() as connection:
        connection.executemany(
            "INSERT INTO trades (out_trade_no, channel, transaction_id, prepay, amount_minor, description, "
            "notify_url, state, charged_minor, paid_at, created_at) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
            rows,
        )


def _sign(folder: Path, numbers: list[str]) -> list[Letter]:
    """A genuine notification for each, by as many processes as there are processors."""
    workers = os.cpu_count() or 1
    parts = [numbers[start::workers] for start in range(workers)]
    signed: list[Any] = [None] * len(numbers)
    with ProcessPoolExecutor(workers) as pool:
        for start, part in enumerate(pool.map(_signed, parts, [str(folder)] * workers)):
            signed[start::workers] = part  # in their order, in which the providers take turns
    return signed


def _signed(numbers: list[str], folder: str) -> list[Letter]:
    state.open_folder(Path(folder))
    letters = []
    for number in numbers:
        found = state.store().rows("SELECT * FROM trades WHERE out_trade_no = ?", number)
        trade: dict[str, Any] = dict(found[0])
        told = {"id": number, "event": "paid", "trade": trade, "refund": None, "created_at": trade["paid_at"]}
        if trade["channel"] == "wechat":
            headers, body = wechat.notification(told, signed_with="")
            letters.append(Letter(post("/webhooks/wechat", headers, body), (204, b"")))
        else:
            form = urlencode(alipay.notification(told)).encode()
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            letters.append(Letter(post("/webhooks/alipay", headers, form), (200, b"success")))
    return letters


def _send(ports: Sequence[int], letters: Sequence[Letter]) -> float:
    """By `SENDERS` processes, each over a connection of its own; the seconds from the first request to the last
    answer.

    Raises:
        AssertionError: one was not acknowledged.
    """
    ready = _fork.Barrier(SENDERS, timeout=60)
    times = _fork.Array("d", 2 * SENDERS)  # when each began, and was done: to start and end a process is no work

    def work(number: int) -> None:
        with socket.create_connection(("127.0.0.1", ports[number % len(ports)]), timeout=60) as line:
            ready.wait()
            times[number] = time.perf_counter()
            for letter in letters[number::SENDERS]:
                assert ask(line, letter.request) == letter.acknowledged, letter.request
            times[SENDERS + number] = time.perf_counter()

    connections.close_all()  # a forked process must not share it
    senders = [_fork.Process(target=work, args=(number,)) for number in range(SENDERS)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert not any(sender.exitcode for sender in senders), "one was not acknowledged"
    return max(times[SENDERS:]) - min(times[:SENDERS])


def _rates(ports: Sequence[int], folder: Path) -> dict[str, list[float]]:
    """Requests a second of each kind, a figure a round."""
    rates: dict[str, list[float]] = {"bare": [], "first": [], "copy": [], "bare again": []}
    bare, dice = [Letter(post("/bare/row", {}), (201, b""))] * ROUND_COUNT, random.Random(SEED)
    for _ in range(ROUNDS // SIGNED_ROUNDS):
        numbers = list(_charge(folder, SIGNED_ROUNDS * ROUND_COUNT))
        dice.shuffle(numbers)  # else each sender, and so each process, would have one provider's alone
        first, copies = _sign(folder, numbers), _sign(folder, numbers)
        for start in range(0, len(numbers), ROUND_COUNT):
            part = slice(start, start + ROUND_COUNT)
            turns = {"bare": bare, "first": first[part], "copy": copies[part], "bare again": bare}
            for name, letters in turns.items():
                rates[name].append(ROUND_COUNT / _send(ports, letters))
    rates["view"] = [
        statistics.harmonic_mean(both) for both in zip(rates["bare"], rates["bare again"], strict=True)
    ]
    return rates


def _report(count: int, seconds: float, rates: dict[str, list[float]]) -> None:
    def ratio(name: str, base: str) -> float:
        return statistics.median(a / b for a, b in zip(rates[name], rates[base], strict=True))

    def row(label: str, name: str, base: str) -> list[str]:
        return [label, f"{statistics.median(rates[name]):.0f}/s", f"{ratio(name, base):.2f}"]

    write(
        name="notifications",
        title="Notifications: first copies and duplicates",
        columns=["request", "rate", "ratio"],
        rows=[
            [
                "a view that commits one INSERT, before and after",
                f"{statistics.median(rates['view']):.0f}/s",
                "1.00",
            ],
            row("after against before, as control", "bare again", "bare"),
            row("first copy of a notification, against the view", "first", "view"),
            row("a copy of it, against the first copy", "copy", "first"),
            [
                f"{count} notifications × {COPIES}, shuffled: none lost, none double, money equal",
                f"{count * COPIES / seconds:.0f}/s",
                "",
            ],
        ],
        bars={
            "requests a second against the bare view": [
                ("bare view", 1.0),
                ("first copy", ratio("first", "view")),
                ("copy", ratio("copy", "view")),
            ]
        },
        note=f"{ROUNDS} rounds of {ROUND_COUNT} in turns, {SENDERS} senders, {PROCESSES} web processes "
        f"of {servers.DEPLOYED_THREADS} threads, seed {SEED}. The senders share the machine with the servers. No "
        "worker runs: what follows from a payment later is not in these figures.",
    )
