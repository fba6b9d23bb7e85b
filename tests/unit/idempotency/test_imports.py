"""A part that nobody uses is not imported: it costs no time at start, and needs no package."""

import ast
import subprocess
import sys

import pytest

from idempotency.observability.metrics import LedgerCollector
from idempotency.webhooks import PayPal


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_the_client_brings_only_itself_and_its_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["httpx"] = None
try:
    import idempotency.client
except ImportError as error:
    print(error)
del sys.modules["httpx"]
import idempotency.client
ours = ("idempotency", "idempotency.client", "idempotency.extras")
print([name for name in sys.modules if name.partition(".")[0] in ("django", "payments", "shop")
       or (name.startswith("idempotency") and name not in ours and not name.startswith("idempotency.client."))])
"""
    assert run(code).splitlines() == ["idempotency.client needs httpx: pip install 'payonce[client]'", "[]"]


def test_what_needs_an_extra_names_it_as_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("prometheus_client", "cryptography"):
        monkeypatch.setitem(sys.modules, module, None)  # as if it was not installed
    with pytest.raises(ImportError, match=r"LedgerCollector needs prometheus-client: .*'payonce\[metrics\]'"):
        LedgerCollector()
    with pytest.raises(ImportError, match=r"idempotency\.webhooks\.PayPal needs .*'payonce\[encryption\]'"):
        PayPal("WH-1", fetch=str.encode)


def test_the_door_of_plain_views_brings_no_other_and_nothing_of_phased_calls() -> None:
    code = """
import sys
from django.apps import AppConfig
from django.conf import settings
class Alone(AppConfig):  # without the checks, which look at every door
    name = "idempotency"
sys.modules["alone"] = sys.modules["__main__"]
settings.configure(
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "alone.Alone"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}},
)
import django
django.setup()
import idempotency.views
print(sorted(name.removeprefix("idempotency.") for name in sys.modules if name.startswith("idempotency.")))
print({name.partition(".")[0] for name in sys.modules} &
      {"rest_framework", "ninja", "httpx", "kazoo", "celery", "procrastinate", "django_redis"})
"""
    ours, others = run(code).splitlines()
    assert others == "set()"
    rooms = {name.partition(".")[0] for name in ast.literal_eval(ours)}
    assert not rooms & {
        *("admin", "cachedmap", "checks", "client", "drf", "functions", "inbox", "locks", "maintenance"),
        *("management", "middleware", "ninja", "testing", "webhooks"),
    }
    lazy = {"phases", "recovery", "heartbeat", "problem_pages"}
    assert not {f"protocol.{name}" for name in lazy} & set(ast.literal_eval(ours))
    assert "redis.log_lines" not in ours
