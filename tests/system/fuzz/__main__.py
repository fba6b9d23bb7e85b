"""`python -m tests.system.fuzz [--seconds N | --runs N] [READER ...]`, led by Atheris.

What was found interesting is kept under .data/fuzz and begun with the next time. Ends with 1 at the first broken
promise, and names the file with the bytes that broke it; `--bytes FILE READER` gives them to the reader once more.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from django.conf import settings

CORPUS = Path(".data/fuzz")
TRIED = r"number_of_executed_units: (\d+)"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.fuzz", description=__doc__)
    parser.add_argument("readers", nargs="*", metavar="READER", help="which; all if none is named")
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--seconds", type=int, default=20, help="for each reader")
    limit.add_argument("--runs", type=int, help="tries for each reader, however long they take")
    parser.add_argument("--bytes", type=Path, metavar="FILE", help="give these to the reader once")
    parser.add_argument("--inside", metavar="LIMIT", help=argparse.SUPPRESS)
    given = parser.parse_args()
    settings.configure(TRUSTED_PROXIES=[], SECRET_KEY="fuzz" * 20, USE_I18N=False)
    if given.inside:
        _look(given.readers[0], given.inside)
    from tests.system.fuzz.readers import READERS, SEEDS

    if unknown := set(given.readers) - set(READERS):
        parser.error(f"there is no reader {', '.join(sorted(unknown))}; there are: {', '.join(READERS)}")
    if given.bytes is not None:
        for name in given.readers:
            print(f"{name}: {READERS[name](given.bytes.read_bytes())!r}")
        return 0
    bound, limited = f"{given.seconds} s", f"-max_total_time={given.seconds}"
    if given.runs is not None:
        bound, limited = f"{given.runs} runs", f"-runs={given.runs}"
    for name in given.readers or READERS:
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(SEEDS[name]):
            (folder / f"seed-{number}").write_bytes(seed)
        print(f"{name}: {bound}, ", end="", flush=True)
        command = [sys.executable, "-m", "tests.system.fuzz", f"--inside={limited}", name]
        ended = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True, errors="replace")
        if ended.returncode:
            print(f"and a promise is broken\n{ended.stderr}", file=sys.stderr)
            return 1
        print(f"{re.findall(TRIED, ended.stderr)[-1]} tries: its promises hold", flush=True)
    return 0


def _look(name: str, limit: str) -> None:
    """Never returns: libFuzzer ends the process at its `limit`, an option of its own."""
    import atheris

    with atheris.instrument_imports(include=["idempotency", "payments", "shop"]):
        from tests.system.fuzz.readers import READERS
    limits = [limit, "-max_len=4096", "-timeout=10", "-rss_limit_mb=1024", "-verbosity=0"]
    kept = [f"-artifact_prefix={CORPUS}/{name}-", "-print_final_stats=1", str(CORPUS / name)]
    atheris.Setup([sys.argv[0], *limits, *kept], READERS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
