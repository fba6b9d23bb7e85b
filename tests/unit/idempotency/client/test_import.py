"""The client stands alone: httpx, and nothing of Django or of the rest of the project."""

import subprocess
import sys


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_it_brings_neither_django_nor_the_rest_of_the_project() -> None:
    code = """
import sys
import idempotency.client
ours = ("idempotency", "idempotency.client", "idempotency.extras")
print([name for name in sys.modules if name.partition(".")[0] in ("django", "payments", "shop")
       or (name.startswith("idempotency") and name not in ours and not name.startswith("idempotency.client."))])
"""
    assert run(code) == "[]"


def test_without_httpx_the_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["httpx"] = None
try:
    import idempotency.client
except ImportError as error:
    print(error)
"""
    assert run(code) == "idempotency.client needs httpx: pip install 'payonce[client]'"
