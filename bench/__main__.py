"""`python -m bench`: run every benchmark and write tables and charts under bench/results.

`python -m bench NAME [--option VALUE …]` runs one. BENCH_RESULTS names another folder for the results.
"""

import os
import secrets
import sys
from importlib import import_module

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bench.settings")
os.environ.setdefault("SECRET_KEY", secrets.token_urlsafe(50))
os.environ.setdefault("PUBLIC_URL", "http://127.0.0.1:8000")

import django

django.setup()

BENCHMARKS = ("keyed", "locks", "writers", "notifications", "flash_sale", "growth", "stock")


def main(arguments: list[str]) -> int:
    """Run the named benchmark, or all of them one after the other: two cores do not carry two at once."""
    names, options = (arguments[:1], arguments[1:]) if arguments else (BENCHMARKS, [])
    for name in names:
        if name not in BENCHMARKS:
            sys.stderr.write(f"No benchmark is called {name!r}. Choose one of: {', '.join(BENCHMARKS)}.\n")
            return 2
        import_module(f"bench.{name}").run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
