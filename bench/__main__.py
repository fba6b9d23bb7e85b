"""`python -m bench`: run every benchmark and write tables and charts under bench/results.

`python -m bench NAME [--option VALUE …]` runs one. BENCH_RESULTS names another folder for the results.
"""

import os
import secrets
import sys
import time
from importlib import import_module

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bench.settings")
os.environ.setdefault("SECRET_KEY", secrets.token_urlsafe(50))
os.environ.setdefault("PUBLIC_URL", "http://127.0.0.1:8000")

import django

django.setup()

# minutes of each with its defaults on two quiet cores; at most 40 in all, and 10 of `keyed`
BENCHMARKS = {
    "keyed": 9.5,
    "locks": 8,
    "writers": 5,
    "notifications": 3.5,
    "growth": 4.5,
    "stock": 5.5,
}


def main(arguments: list[str]) -> int:
    """Run the named benchmark, or all, one after the other: two cores carry only one."""
    names, options = (arguments[:1], arguments[1:]) if arguments else (list(BENCHMARKS), [])
    for name in names:
        if name not in BENCHMARKS:
            sys.stderr.write(f"No benchmark is called {name!r}. Choose one of: {', '.join(BENCHMARKS)}.\n")
            return 2
    left = sum(BENCHMARKS[name] for name in names)
    for name in names:
        print(f"{name}: about {BENCHMARKS[name]:g} of {left:g} minutes left", flush=True)
        began = time.monotonic()
        import_module(f"bench.{name}").run(options)
        left -= BENCHMARKS[name]
        print(f"{name}: took {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
