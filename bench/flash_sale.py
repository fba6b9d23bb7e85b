"""A flash sale: many buyers, few units, three web processes. First the proof, then the price of a refusal.

Every buyer calls once, all at the same time. Exactly the units are sold, to the first that arrived.
"""

import secrets
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import NamedTuple

from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone
from rest_framework.authtoken.models import Token

from bench import servers
from bench.harness import ask, connect, options, post
from bench.report import compare
from shop.models import FlashSale, FlashSalePurchase, Product

PROCESSES = 3
SENDERS = PROCESSES * servers.DEPLOYED_THREADS  # so that a crowd keeps all of them busy
ORDERS = "order"


class Answer(NamedTuple):
    """Time since the start, status and body."""

    at: float
    status: int
    body: bytes


def run(arguments: Sequence[str] = ()) -> None:
    """Prove and measure, and write bench/results/flash_sale.*.

    Raises:
        AssertionError: a unit was sold twice, or not at all, or to a buyer who came too late.
    """
    given = options("flash_sale", arguments, rounds=3, buyers=10_000, units=1_000)
    servers.require_own_redis()
    call_command("migrate", verbosity=0)
    with servers.guarded() as guardian:
        ports = servers.start_shops(guardian, {}, name="flash", processes=PROCESSES)
        rounds = [_round(ports, given.buyers, given.units) for _ in range(given.rounds)]
    rates = {kind: [figures[kind] for figures in rounds] for kind in rounds[0]}
    note = (
        f"{given.rounds} rounds; a fresh sale and crowd each: {given.buyers} buyers, {PROCESSES} web processes. "
        f"In every round exactly {given.units} orders, one a buyer, for the first {given.units} that arrived. "
        f"{SENDERS} senders share the machine with the servers."
    )
    compare("flash_sale", "Answers of a flash sale", {"": rates}, base=ORDERS, unit="answers", note=note)


def _round(ports: Sequence[int], buyers: int, units: int) -> dict[str, float]:
    """Run a fresh sale; return the answers a second of each kind."""
    sale, tokens = _prepare(buyers, units)
    path = f"/api/v1/flash-sales/{sale.product.sku}/orders"
    keys = {token: secrets.token_hex(16) for token in tokens}
    answers = _send(ports, path, keys)
    _prove(sale, answers, buyers, units)
    last_order = max(answer.at for answer in answers.values() if answer.status == 201)
    refused = [answer.at for answer in answers.values() if answer.at > last_order]
    winners = [token for token, answer in answers.items() if answer.status == 201]
    again = _send(ports, path, {token: secrets.token_hex(16) for token in winners})
    assert {answer.status for answer in again.values()} == {409}, "a buyer bought twice"
    replays = _send(ports, path, keys)
    assert all(replays[token].body == answers[token].body for token in tokens), "a replay differs"
    print(f"flash_sale: {units} of {buyers} sold", flush=True)
    return {
        ORDERS: units / last_order,
        "sold_out": len(refused) / (max(refused) - last_order),
        "already_bought": _rate(again),
        "replay of any of them": _rate(replays),
    }


def _prepare(buyers: int, units: int) -> tuple[FlashSale, list[str]]:
    name, now = secrets.token_hex(4), timezone.now()
    product = Product.objects.create(
        sku=f"bench-{name}", name="Trail sneaker", price_minor=29900, stock=units, flash_only=True
    )
    sale = FlashSale.objects.create(
        product=product, units=units, starts_at=now - timedelta(seconds=1), ends_at=now + timedelta(hours=1)
    )
    users = User.objects.bulk_create([User(username=f"{name}-{number}") for number in range(buyers)], 2000)
    tokens = Token.objects.bulk_create([Token(key=secrets.token_hex(20), user=user) for user in users], 2000)
    return sale, [token.key for token in tokens]


def _prove(sale: FlashSale, answers: dict[str, Answer], buyers: int, units: int) -> None:
    statuses = Counter(answer.status for answer in answers.values())
    assert statuses == {201: units, 409: buyers - units}, "oversold, or stuck"
    sale.refresh_from_db()
    bought = FlashSalePurchase.objects.filter(sale=sale)
    assert sale.sold == bought.count() == bought.values("buyer").distinct().count() == units
    assert Product.objects.get(pk=sale.product_id).stock == 0
    places = list(bought.order_by("place").values_list("place", flat=True))
    assert places == list(range(1, units + 1)), "a buyer passed buyers who came earlier"


def _send(ports: Sequence[int], path: str, keys: dict[str, str]) -> dict[str, Answer]:
    """Send one call a token over `SENDERS` threads, each with a connection; return token -> answer.

    The threads mostly wait, so one process leaves more of the machine to the servers than several would.
    """
    calls = list(keys.items())
    ready = threading.Barrier(SENDERS + 1, timeout=60)

    def work(number: int) -> list[tuple[str, float, int, bytes]]:
        requests = [
            (token, post(path, {"Authorization": f"Token {token}", "Idempotency-Key": key}))
            for token, key in calls[number::SENDERS]
        ]
        found = []
        with connect(ports[number % len(ports)]) as connection:
            ready.wait()
            for token, request in requests:
                status, body = ask(connection, request)
                found.append((token, time.monotonic(), status, body))
        return found

    with ThreadPoolExecutor(SENDERS) as pool:
        senders = [pool.submit(work, number) for number in range(SENDERS)]
        ready.wait()
        began = time.monotonic()
        answers = [answer for sender in senders for answer in sender.result()]
    assert len(answers) == len(keys), "a call got no answer"
    return {token: Answer(at - began, status, body) for token, at, status, body in answers}


def _rate(answers: dict[str, Answer]) -> float:
    return len(answers) / max(answer.at for answer in answers.values())
