"""A process of the tests' own over the tests' database, spoken to line by line."""

import os
import subprocess
import sys
from urllib.parse import urlsplit

from tests.sandbox import ROOT


def start(module: str, *, database: str) -> "subprocess.Popen[str]":
    """Run `module` on the database of that name; its input and output are pipes of lines."""
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{database}").geturl()
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.settings"},
    )
