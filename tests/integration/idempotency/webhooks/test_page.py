"""The examples of docs/how-to/receive-a-webhook.md take real requests."""

import json
import re
import shlex
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import RequestFactory

from idempotency.webhooks import StandardWebhooks, applying
from tests import pages
from tests.integration.idempotency.webhooks.hooks import SECRET, signed

PAGE = "docs/how-to/receive-a-webhook.md"
GITHUB, WAREHOUSE = pages.blocks(PAGE)
COMMANDS = [shlex.split(line) for line in re.findall(r"^manage\.py (.*)$", pages.text_of(PAGE), re.MULTILINE)]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run an example with the names that the page takes from the reader's project."""
    monkeypatch.setattr(applying, "declared", {**applying.declared})
    monkeypatch.setattr("idempotency.webhooks.intake.declared", applying.declared)
    return pages.run


def post(view: Any, raw: bytes, headers: dict[str, str]) -> Any:
    return view(RequestFactory().post("/", raw, content_type="application/json", headers=headers))


def test_github(run: Any) -> None:
    made: list[Any] = []
    model = SimpleNamespace(objects=SimpleNamespace(create=lambda **given: made.append(given)))
    (pattern,) = run(GITHUB, GITHUB_SECRET=SECRET, Push=model)["urlpatterns"]
    raw, headers = signed("d1", b'{"ref": "main"}')
    for status in ("applied", "duplicate"):
        answer = post(pattern.callback, raw, headers | {"X-GitHub-Event": "push"})
        assert json.loads(answer.content) == {"status": status}
    assert made == [{"ref": "main"}]


def test_a_warehouse(run: Any) -> None:
    made: list[Any] = []
    model = SimpleNamespace(objects=SimpleNamespace(create=lambda **given: made.append(given["number"])))
    secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"
    names = run(WAREHOUSE, WAREHOUSE_SECRET=secret, Move=model)
    for number in (2, 1):
        raw = json.dumps({"order": "o", "number": number}).encode()
        headers = StandardWebhooks(secret).sign(f"m{number}", raw, at=time.time())
        assert post(names["moved"], raw, headers).status_code == 200
    apply, replay = COMMANDS
    call_command(*apply, verbosity=0)
    assert made == [1, 2]
    with pytest.raises(CommandError, match="applied or missing"):
        call_command(*replay, "--operator", "ann")
