"""A flash sale: many buyers, few units, three web processes. First a proof, then how much cheaper a refusal is.

Everybody calls once, all at the same time. Exactly the units are sold, to those who arrived first; while units
last the rate is that of orders, afterwards that of refusals, which Redis decides and the ledger keeps.
"""

import argparse
import secrets
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone
from rest_framework.authtoken.models import Token

from bench import servers
from bench.plain_http import ask, post
from bench.report import write
from shop.models import FlashSale, FlashSalePurchase, Product

ROUNDS = 3
BUYERS = 10_000
UNITS = 1_000
PROCESSES = 3
SENDERS = PROCESSES * servers.DEPLOYED_THREADS  # so that a crowd keeps all of them busy
WANTED_RATIO = 5.0


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer: when it came, in seconds from the start, and what it was."""

    at: float
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Figures:
    """Answers a second, of one round."""

    orders: float
    sold_out: float
    already_bought: float
    replayed: float


def run(options: Sequence[str] = ()) -> None:
    """Prove and measure, and write bench/results/flash_sale.*.

    Raises:
        AssertionError: a unit was sold twice, or not at all, or to somebody who came too late.
    """
    parser = argparse.ArgumentParser(prog="python -m bench flash_sale")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--buyers", type=int, default=BUYERS)
    parser.add_argument("--units", type=int, default=UNITS)
    given = parser.parse_args(options)
    if not 0 < given.units < given.buyers:
        parser.error("there must be more buyers than units, and a unit")
    servers.require_own_redis()
    call_command("migrate", verbosity=0)
    with servers.guarded() as guardian:
        ports = servers.start_shops(guardian, {}, name="flash", processes=PROCESSES)
        rounds = [_round(ports, given.buyers, given.units) for _ in range(given.rounds)]
    _report(rounds, given)


def _round(ports: Sequence[int], buyers: int, units: int) -> Figures:
    """A fresh sale and a fresh crowd."""
    sale, tokens = _prepare(buyers, units)
    path = f"/api/v1/flash-sales/{sale.product.sku}/orders"
    keys = {token: secrets.token_hex(16) for token in tokens}
    heard = _send(ports, path, keys)
    _prove(sale, heard, buyers, units)
    last_order = max(one.at for one in heard.values() if one.status == 201)
    after = [one.at for one in heard.values() if one.at > last_order]
    winners = [token for token, one in heard.items() if one.status == 201]
    again = _send(ports, path, {token: secrets.token_hex(16) for token in winners})
    assert {one.status for one in again.values()} == {409}, "somebody bought twice"
    replays = _send(ports, path, keys)
    assert all(replays[token].body == heard[token].body for token in tokens), "a replay differs"
    return Figures(
        orders=units / last_order,
        sold_out=len(after) / (max(after) - last_order),
        already_bought=_rate(again),
        replayed=_rate(replays),
    )


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


def _prove(sale: FlashSale, heard: dict[str, Heard], buyers: int, units: int) -> None:
    assert Counter(one.status for one in heard.values()) == {201: units, 409: buyers - units}, "oversold, or stuck"
    sale.refresh_from_db()
    bought = FlashSalePurchase.objects.filter(sale=sale)
    assert sale.sold == bought.count() == bought.values("buyer").distinct().count() == units
    assert Product.objects.get(pk=sale.product_id).stock == 0
    places = list(bought.order_by("place").values_list("place", flat=True))
    assert places == list(range(1, units + 1)), "somebody was faster than those who came before him"


def _send(ports: Sequence[int], path: str, keys: dict[str, str]) -> dict[str, Heard]:
    """Token -> what it heard; by `SENDERS` threads, each over a connection of its own.

    They mostly wait, so threads of one process leave more of the machine to the servers than processes would.
    """
    calls = list(keys.items())
    ready = threading.Barrier(SENDERS + 1, timeout=60)

    def work(number: int) -> list[tuple[str, float, int, bytes]]:
        requests = [(token, _request(path, token, key)) for token, key in calls[number::SENDERS]]
        with socket.create_connection(("127.0.0.1", ports[number % len(ports)]), timeout=60) as line:
            ready.wait()
            return [(token, *_timed(line, request)) for token, request in requests]

    with ThreadPoolExecutor(SENDERS) as senders:
        told = [senders.submit(work, number) for number in range(SENDERS)]
        ready.wait()
        began = time.monotonic()
        answers = [answer for sender in told for answer in sender.result()]
    assert len(answers) == len(keys), "a call got no answer"
    return {token: Heard(at - began, status, body) for token, at, status, body in answers}


def _timed(line: socket.socket, request: bytes) -> tuple[float, int, bytes]:
    status, body = ask(line, request)
    return time.monotonic(), status, body


def _request(path: str, token: str, key: str) -> bytes:
    return post(path, {"Authorization": f"Token {token}", "Idempotency-Key": key})


def _rate(heard: dict[str, Heard]) -> float:
    return len(heard) / max(one.at for one in heard.values())


def _report(rounds: Sequence[Figures], given: argparse.Namespace) -> None:
    kinds = {
        "order": [one.orders for one in rounds],
        "sold_out": [one.sold_out for one in rounds],
        "already_bought": [one.already_bought for one in rounds],
        "replay of any of them": [one.replayed for one in rounds],
    }
    ratios = {
        kind: statistics.median(rate / base for rate, base in zip(rates, kinds["order"], strict=True))
        for kind, rates in kinds.items()
    }
    verdict = "reached" if ratios["sold_out"] >= WANTED_RATIO else "not reached"
    write(
        name="flash_sale",
        title=f"Flash sale: {given.buyers} buyers, {given.units} units, {PROCESSES} web processes",
        columns=("answer", "a second", "ratio to orders"),
        rows=[[kind, f"{statistics.median(rates):.0f}", f"{ratios[kind]:.2f}"] for kind, rates in kinds.items()],
        bars={"answers a second against orders": list(ratios.items())},
        x_label="answers a second, ratio to orders",
        note=(
            f"{given.rounds} rounds, medians; a fresh sale and crowd each. In every round exactly {given.units} "
            f"orders, one a buyer, for the first {given.units} who arrived. {SENDERS} senders share the machine "
            f"with the servers. sold_out at {WANTED_RATIO:.0f} times the rate of orders was wanted: {verdict}. A "
            "refusal costs the token's query and its row in the ledger, none of the sale's SQL and no marker of "
            "its key."
        ),
    )
