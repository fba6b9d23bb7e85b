"""`python -m bench`: prepare a database, run every benchmark, write tables and plots under bench/results.

`python -m bench NAME [OPTIONS]` runs one of them. BENCH_RESULTS names another folder for what is written.
"""

import os
import secrets
import sys
from collections.abc import Callable, Sequence

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bench.settings")
os.environ.setdefault("SECRET_KEY", secrets.token_urlsafe(50))
os.environ.setdefault("PUBLIC_URL", "http://127.0.0.1:8000")

import django

django.setup()

from django.core.management import call_command

from bench import (
    capacity,
    catalogue,
    flash_sale,
    growth,
    http_rounds,
    keyed_post,
    lock_or_queue,
    locks,
    notifications,
    peer_faults,
    shards,
    stock,
)


def run_keyed_post(arguments: Sequence[str]) -> None:
    """In this process, on the shop's own tables."""
    call_command("migrate", verbosity=0)
    keyed_post.run()


BENCHMARKS: dict[str, Callable[[Sequence[str]], None]] = {
    "keyed_post": run_keyed_post,
    "http_rounds": http_rounds.run,
    "peer_faults": peer_faults.run,
    "locks": locks.run,
    "lock_or_queue": lock_or_queue.run,
    "notifications": notifications.run,
    "flash_sale": flash_sale.run,
    "growth": growth.run,
    "stock": stock.run,
    "catalogue": catalogue.run,
    "shards": shards.run,
    "capacity": capacity.run,
}


def main(arguments: Sequence[str]) -> int:
    """Everything, one after the other: two cores carry no two benchmarks at once."""
    if not arguments:
        for benchmark in BENCHMARKS.values():
            benchmark(())
        return 0
    name, *options = arguments
    if name not in BENCHMARKS:
        sys.stderr.write(f"There is no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}.\n")
        return 2
    BENCHMARKS[name](options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
