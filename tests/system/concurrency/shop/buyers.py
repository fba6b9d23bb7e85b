"""Processes that buy and give back at the same instant, over the tests' database; each has some threads.

`Buyers` starts them once. A job is a list of lines, one a thread; a line is a list of acts, each in a transaction
of its own: ``["buy", user, {sku: units}]``, or ``["return"]``, which closes the line's last order that stands. All
threads of all processes are ready before any begins.
"""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.system.concurrency.shop import children

PROCESSES = 3

Act = list[Any]


class Buyers:
    """The processes; `stop` them in the end."""

    def __init__(self, *, database: str) -> None:
        self._processes = [
            children.start("tests.system.concurrency.shop.buyers", database=database) for _ in range(PROCESSES)
        ]

    def begin(self, lines: Sequence[Sequence[Act]]) -> None:
        """Let every line begin at the same instant."""
        for number, process in enumerate(self._processes):
            self._write(process, json.dumps(lines[number::PROCESSES]))
        for process in self._processes:
            assert self._read(process) == "ready"
        for process in self._processes:
            self._write(process, "go")

    def end(self) -> Counter[str]:
        """How often what came out: ``ordered``, ``closed``, ``nothing``, or a refusal's code, or an error."""
        found: Counter[str] = Counter()
        for process in self._processes:
            found += Counter(json.loads(self._read(process)))
        return found

    def all_at_once(self, lines: Sequence[Sequence[Act]]) -> Counter[str]:
        """Both."""
        self.begin(lines)
        return self.end()

    def stop(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        assert [process.wait(30) for process in self._processes] == [0] * PROCESSES
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.close()

    def _write(self, process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(line + "\n")

    def _read(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()


class Line(threading.Thread):
    """One thread of a process, with a connection of its own."""

    def __init__(self, acts: list[Act], barrier: threading.Barrier) -> None:
        super().__init__()
        self.acts, self.barrier = acts, barrier
        self.found: Counter[str] = Counter()
        self.orders: list[Any] = []

    def run(self) -> None:
        from django.db import connection

        try:
            connection.ensure_connection()
            self.barrier.wait()  # all are ready
            self.barrier.wait()  # go
            for act in self.acts:
                self.found[self.do(*act)] += 1
        finally:
            connection.close()

    def do(self, what: str, *arguments: Any) -> str:
        from idempotency.errors import Problem

        try:
            return self.buy(*arguments) if what == "buy" else self.give_back()
        except Problem as refusal:
            return refusal.code
        except Exception as error:
            return repr(error)

    def buy(self, user_id: int, quantities: dict[str, int]) -> str:
        from django.db import transaction

        from shop.orders import placing as orders

        with transaction.atomic():
            order = orders.create_order(user_id=user_id, quantities=quantities)
        self.orders.append(order.pk)
        return "ordered"

    def give_back(self) -> str:
        from django.db import transaction
        from django.utils import timezone

        from idempotency.postgres.unit import UnitOfWork
        from shop.models import Order
        from shop.orders import lifecycle

        if not self.orders:
            return "nothing"
        order_id = self.orders.pop()
        Order.objects.filter(pk=order_id).update(closing_at=timezone.now())
        with transaction.atomic():
            lifecycle.on_payment(order_id=order_id, event="closed", work=UnitOfWork())
        return "closed"


def main() -> None:
    """Jobs come in and results go out, a line of JSON each, until the input ends."""
    import django

    django.setup()
    for text in sys.stdin:
        jobs = json.loads(text)
        barrier = threading.Barrier(len(jobs) + 1, timeout=60)
        lines = [Line(acts, barrier) for acts in jobs]
        for line in lines:
            line.start()
        barrier.wait()
        print("ready", flush=True)
        assert sys.stdin.readline().strip() == "go"
        barrier.wait()
        for line in lines:
            line.join()
        print(json.dumps(sum((line.found for line in lines), Counter())), flush=True)


if __name__ == "__main__":
    main()
