"""Short ways to where a bug shows: a chosen mix of actions and faults.

Each is sound by itself: without a planted bug it ends with no violation.
"""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from tests.running import until
from tests.system.chaos import stage
from tests.system.chaos.clients import Shop, Shopper
from tests.system.chaos.faults import keep_trying, tell_sandbox
from tests.system.chaos.history import Answer, History, Intent
from tests.system.chaos.lab import Lab
from tests.system.chaos.plan import Visit
from tests.system.chaos.planted import Bug
from tests.system.chaos.recovery import judge

REST_SECONDS = 20.0
RUSH_UNITS = 10
PATIENT_SECONDS = 20.0  # for an answer: what stands still is to be heard when it goes on


class Bench:
    """A lab on which one scenario is played after the other, each in an empty shop.

    Args:
        lab: it is running, with two web processes.
    """

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.database = lab.database()
        self.stage = stage.build(self.database)

    def close(self) -> None:
        self.database.close()

    @contextmanager
    def open(self) -> Iterator["Scene"]:
        """An empty shop and its first shopper."""
        self._clear()
        self.stage = stage.build(self.database)
        shop = Shop(self.lab.urls, self.lab.plan.sandbox_url, History(), timeout_seconds=PATIENT_SECONDS)
        try:
            yield Scene(self, shop)
        finally:
            shop.close()

    @contextmanager
    def planted(self, bug: Bug) -> Iterator[None]:
        """The bug is on in the block, and the constraints that would still stop it are gone."""
        switch = self.lab.plan.data_dir / "planted"
        gone = [(table, name, self._definition(name)) for table, name in bug.constraints]
        for table, name, _ in gone:
            self.database.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
        switch.write_text(bug.name)
        try:
            yield
        finally:
            switch.write_text("")
            for table, name, definition in gone:
                self._put_back(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")

    def _put_back(self, constraint: str) -> None:
        """Put it back once nothing breaks it; a late request may have left something."""

        def put_back() -> None:
            self._clear()
            self.database.execute(constraint)

        keep_trying(put_back, psycopg.errors.IntegrityError)

    def _definition(self, name: str) -> str:
        row = self.database.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", [name]
        ).fetchone()
        assert row is not None, f"there is no constraint {name}"
        return str(row[0])

    def _clear(self) -> None:
        self._forget_trades()
        keep_trying(
            lambda: stage.clear(self.database), psycopg.errors.DeadlockDetected
        )  # with a timer of the worker
        with self.lab.redis() as redis:
            redis.flushall()

    def _forget_trades(self) -> None:
        """Forget also trades that the sandbox still notifies; it starts again for that."""
        with closing(
            sqlite3.connect(self.lab.plan.data_dir / "sandbox" / "sandbox.sqlite3", timeout=10)
        ) as trades:
            due = trades.execute("SELECT 1 FROM deliveries WHERE state = 'due' LIMIT 1").fetchone() is not None
            if due:
                self.lab.kill("sandbox")
            for table in ("deliveries", "refunds", "trades", "objects"):
                trades.execute(f"DELETE FROM {table}")
            trades.commit()
        if due:
            self.lab.revive("sandbox")
            self.lab.wait_until_ready()


class Scene:
    """One scenario being played."""

    def __init__(self, bench: Bench, shop: Shop) -> None:
        self.bench = bench
        self.lab = bench.lab
        self.shop = shop
        self.shopper = Shopper(shop, "c0")

    def verdict(self, *, rest_seconds: float = REST_SECONDS) -> list[str]:
        """Of everything up to now."""
        return judge(self.lab, self.shop, self.bench.stage, rest_seconds=rest_seconds)

    def paid_order(self, visit: Visit) -> dict[str, Any]:
        """Its payment, after the shopper has paid by WeChat."""
        order_id = self.shopper.order(visit)
        self.shop.pay(self.shopper.begin_payment(visit, order_id, "wechat"))
        return self.shopper.paid(visit, order_id)

    def payment(self, visit: Visit) -> Intent:
        """An order, and the intent to pay it by WeChat, which nobody has sent yet."""
        order_id = self.shopper.order(visit)
        intent = self.shopper.intent("pay", visit, f"/api/v1/orders/{order_id}/payment", about=order_id)
        intent.body = {"channel": "wechat"}
        return intent

    def submitted(self, intent: Intent) -> bool:
        """Whether the provider is being called, or was, for the order that is to be paid."""
        return self._finds("JOIN payments_attempt a ON a.payment_id = p.id WHERE submitted_at IS NOT NULL", intent)

    def succeeded(self, intent: Intent) -> bool:
        """Whether its payment is known."""
        return self._finds("WHERE p.status = 'succeeded'", intent)

    def _finds(self, where: str, intent: Intent) -> bool:
        statement = f"SELECT 1 FROM payments_payment p {where} AND order_id = %s LIMIT 1"
        return self.bench.database.execute(statement, [intent.about]).fetchone() is not None

    def final(self, intent: Intent, *, web: int) -> Answer | None:
        """Its answer by that web process, if it is one to stop at."""
        answer = self.shop.send(intent, web=web)
        return answer if answer.is_final else None

    @contextmanager
    def first_web_far_from_providers(self, delay_seconds: float) -> Iterator[None]:
        name = f"{self.lab.webs[0]} provider"
        self.lab.network.slow(name, delay_seconds=delay_seconds)
        try:
            yield
        finally:
            self.lab.network.heal(name)


def visit(user: int, *, quantity: int = 1, copies: int = 1) -> Visit:
    return Visit(kind="buy", user=user, web=user, items=(("mug", quantity),), copies=copies)


def double_clicks(scene: Scene) -> None:
    """Every order is sent four times at the same instant."""
    for user in range(4):
        scene.shopper.order(visit(user, copies=4))


def outlived_lease(scene: Scene) -> None:
    """Stop a payment's first run in its call; answer a retry, pay, and let the first go on."""
    intent, first_web = scene.payment(visit(1)), scene.lab.webs[0]
    with scene.first_web_far_from_providers(1.0), ThreadPoolExecutor(1) as pool:
        first = pool.submit(scene.shop.send, intent, web=0)
        until(lambda: scene.submitted(intent))
        scene.lab.pause(first_web)
        try:
            answer = until(lambda: scene.final(intent, web=1))
            scene.shop.pay(answer.document["attempts"][0])
            until(lambda: scene.succeeded(intent))
        finally:
            scene.lab.resume(first_web)
        first.result()


def impatient_duplicate(scene: Scene) -> None:
    """A copy comes while the first run of a payment waits for the provider."""
    intent = scene.payment(visit(1))
    with scene.first_web_far_from_providers(0.4), ThreadPoolExecutor(1) as pool:
        first = pool.submit(scene.shop.send, intent, web=0)
        until(lambda: scene.submitted(intent))
        scene.shop.send(intent, web=1)
        first.result()


def copied_callbacks(scene: Scene) -> None:
    """Each notification comes six times at once."""
    tell_sandbox(scene.lab, {"duplicates": 6, "parallel": 6})
    scene.paid_order(visit(1))


def racing_refunds(scene: Scene) -> None:
    """Two refunds of the whole price, each under a key of its own, at the same instant."""
    wanted = visit(1)
    payment = scene.paid_order(wanted)
    scene.shop.aside(*(lambda web=web: scene.shopper.refund(wanted, payment, part=100, web=web) for web in (0, 1)))


def late_retries(scene: Scene) -> None:
    """The reaper passes, Redis forgets, and the same keys come once more."""
    for user in range(3):
        scene.shopper.order(visit(user))

    def runs(where: str) -> int:
        """Return the schedule of the reaper's newest run; a job that succeeded is gone."""
        row = scene.bench.database.execute(
            "SELECT max(run.defer_timestamp) FROM procrastinate_periodic_defers AS run LEFT JOIN procrastinate_jobs "
            f"AS job ON job.id = run.job_id WHERE run.task_name = 'shop.reap_ledger' AND {where}"
        ).fetchone()
        return int(row[0] or 0) if row else 0

    before = runs("true")

    def passed() -> bool:
        """Whether a run has succeeded that began after the orders."""
        scene.lab.supervise()  # emptying the tables may have ended the worker by a deadlock with its timer
        return runs("job.id IS NULL") > before

    until(passed)
    with scene.lab.redis() as redis:
        redis.flushall()
    for intent in scene.shop.history.of("order"):
        scene.shop.ask(intent, web=intent.user + 1)


def rush(scene: Scene) -> None:
    """Four times seven of ten units, at the same instant."""
    database = scene.bench.database
    with database.transaction():  # the row's lock keeps orders that are closed from putting units back in between
        database.execute("UPDATE shop_product SET stock = %s WHERE sku = 'mug'", [RUSH_UNITS])
        there = database.execute(stage.ON_SALE).fetchall()
    scene.bench.stage.shelf.update({sku: shelf + taken for sku, shelf, taken in there})
    scene.shop.aside(*(lambda user=user: scene.shopper.order(visit(user, quantity=7)) for user in range(4)))


Scenario = Callable[[Scene], None]
