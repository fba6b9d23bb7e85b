"""Ten thousand notifications, three copies each, shuffled, to two web processes.

First the proof: every one acknowledged, none lost, none counted twice, books equal to what the sandbox charged.
Then the rates in short rounds: first copies and later copies against a view that commits one INSERT, measured
before and after them. Each copy is signed before the clock starts. No worker runs.
"""

import os
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections
from django.db.models import Sum
from django.utils import timezone

from bench import servers
from bench.harness import ask, connect, fork_all, options, post, ratio
from bench.report import compare
from idempotency.ids import new_id
from payments.models import Anomaly, Attempt, Notification, Observation, Payment
from payments.operations.figures import trial_balance
from payments.sandbox import state
from payments.sandbox.delivery import NOTIFICATIONS
from shop.models import Order

COPIES, SENDERS, PROCESSES = 3, 4, 2
ROUND_COUNT = 300  # a shared machine runs at another speed a few seconds later
SIGNED_ROUNDS = 6  # at once: meanwhile the servers' part of the machine's caches gets cold
SEED = 20261121
CHANNELS = ("wechat", "alipay")
VIEW = "a view that commits one INSERT"
NOWHERE = "http://127.0.0.1:1"

Letter = tuple[bytes, tuple[int, bytes]]  # a request, and the status and body that acknowledge it


def run(arguments: Sequence[str] = ()) -> None:
    """Prove and measure, and write bench/results/notifications.*.

    Raises:
        AssertionError: a notification was lost, or counted twice.
    """
    given = options("notifications", arguments, count=10_000, rounds=60)
    servers.require_own_redis()
    call_command("migrate", verbosity=0)
    with tempfile.TemporaryDirectory() as folder, servers.guarded() as guardian:
        state.open_folder(Path(folder))
        addresses = dict.fromkeys(("WECHAT_API_URL", "ALIPAY_GATEWAY_URL", "STRIPE_API_URL"), NOWHERE)
        environment = {**state.keys().settings, **addresses}
        ports = servers.start_shops(guardian, environment, processes=PROCESSES)
        seconds = _prove(ports, Path(folder), given.count)
        rates = _rates(ports, Path(folder), given.rounds)
    copies = ratio(rates["copy"], rates["first copy"])
    note = (
        f"{given.count} notifications × {COPIES}, shuffled (seed {SEED}): none lost, none double, money equal, "
        f"{given.count * COPIES / seconds:.0f}/s. Then {given.rounds} rounds of {ROUND_COUNT}: a copy against a "
        f"first copy {copies:.2f}. {SENDERS} senders share the machine with {PROCESSES} web processes of "
        f"{servers.DEPLOYED_THREADS} threads."
    )
    compare("notifications", "Notifications and their copies", {"": rates}, base=VIEW, note=note)


def _prove(ports: Sequence[int], folder: Path, count: int) -> float:
    """Send everything, check the books, return the seconds it took."""
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
    assert Notification.objects.filter(out_trade_no__in=charged).count() == count, "a copy was stored twice"
    assert not Anomaly.objects.filter(payment__in=ours).exists(), "an anomaly was filed"
    assert _books() - before == sum(charged.values()), "the journal is not equal"
    return seconds


def _books() -> int:
    """Return our balance at all providers, as the journal has it."""
    return sum(row.balance_minor for row in trial_balance() if row.account.startswith("provider:"))


def _charge(folder: Path, count: int) -> dict[str, int]:
    """Make orders with open attempts and charges; return our number -> minor units."""
    user, _ = User.objects.get_or_create(username="bench-shopper")
    later = timezone.now() + timedelta(hours=1)
    dice = random.Random(SEED)
    settings = state.keys().settings
    merchants = {"wechat": settings["WECHAT_MCH_ID"], "alipay": settings["ALIPAY_SELLER_ID"]}
    orders, payments, attempts = [], [], []
    for index in range(count):
        channel = CHANNELS[index % 2]
        price: dict[str, Any] = {"amount_minor": dice.randrange(1, 100_000), "currency": "CNY"}
        order = Order(id=new_id(), user=user, total_minor=price["amount_minor"], currency="CNY", expires_at=later)
        payment = Payment(order_id=order.id, owner=user, **price)
        attempt = Attempt(
            payment=payment,
            channel=channel,
            merchant=merchants[channel],
            method="native" if channel == "wechat" else "page",
            description="Mug",
            status="pending",
            submitted_at=timezone.now(),
            expires_at=later,
            **price,
        )
        orders.append(order)
        payments.append(payment)
        attempts.append(attempt)
    Order.objects.bulk_create(orders, batch_size=2000)
    Payment.objects.bulk_create(payments, batch_size=2000)
    Attempt.objects.bulk_create(attempts, batch_size=2000)
    with connections["default"].cursor() as cursor:
        cursor.execute("ANALYZE")  # rows that come one by one are known to the planner; these came at once
    _charge_in_sandbox(attempts, marked=later.timestamp())
    return {attempt.out_trade_no: attempt.amount_minor for attempt in attempts}


def _charge_in_sandbox(attempts: list[Attempt], *, marked: float) -> None:
    """Charge all in one transaction of the sandbox: one each would take longer."""
    rows = [
        (
            *(attempt.out_trade_no, attempt.channel, f"4200{attempt.out_trade_no[:24]}", attempt.out_trade_no),
            *(attempt.amount_minor, attempt.description, NOWHERE, "SUCCESS", attempt.amount_minor),
            *(time.time(), marked),
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
    """Sign a genuine notification for each number, in as many processes as there are cores."""
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
        event = {"id": number, "event": "paid", "trade": trade, "refund": None, "created_at": trade["paid_at"]}
        headers, body = NOTIFICATIONS[trade["channel"]](event)
        acknowledged = (204, b"") if trade["channel"] == "wechat" else (200, b"success")
        letters.append((post(f"/webhooks/{trade['channel']}", headers, body), acknowledged))
    return letters


def _send(ports: Sequence[int], letters: Sequence[Letter]) -> float:
    """Send from `SENDERS` processes, a connection each; return the seconds it took."""

    def work(number: int) -> Iterator[None]:
        with connect(ports[number % len(ports)]) as connection:
            yield
            for request, acknowledged in letters[number::SENDERS]:
                assert ask(connection, request) == acknowledged, request

    connections.close_all()  # a forked process must not share them
    return fork_all(SENDERS, work)


def _rates(ports: Sequence[int], folder: Path, rounds: int) -> dict[str, list[float]]:
    """Return the requests a second of each kind, a figure a round."""
    rates: dict[str, list[float]] = {"before": [], "first copy": [], "copy": [], "after": []}
    bare: list[Letter] = [(post("/api/bare/row", {}), (201, b""))] * ROUND_COUNT
    dice = random.Random(SEED)
    for _ in range(max(rounds // SIGNED_ROUNDS, 1)):
        numbers = list(_charge(folder, SIGNED_ROUNDS * ROUND_COUNT))
        dice.shuffle(numbers)  # else each sender, and so each process, would have one provider's alone
        first, copies = _sign(folder, numbers), _sign(folder, numbers)
        for start in range(0, len(numbers), ROUND_COUNT):
            part = slice(start, start + ROUND_COUNT)
            turns = {"before": bare, "first copy": first[part], "copy": copies[part], "after": bare}
            for name, letters in turns.items():
                rates[name].append(ROUND_COUNT / _send(ports, letters))
    before, after = rates.pop("before"), rates.pop("after")
    return {VIEW: [statistics.harmonic_mean(pair) for pair in zip(before, after, strict=True)], **rates}
