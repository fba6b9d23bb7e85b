"""A process of the tests' own over the tests' database, spoken to line by line."""

import subprocess
import sys

from tests.processes import on_the_tests_database
from tests.sandbox import ROOT


def start(module: str, *, database: str) -> "subprocess.Popen[str]":
    """Run `module` on the database of that name; its input and output are pipes of lines."""
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        cwd=ROOT,
        env=on_the_tests_database(database),
    )
