"""The examples of docs/how-to/receive-a-webhook.md take real requests, and its commands run."""

import hashlib
import hmac
import json
import re
import shlex
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import RequestFactory

from idempotency.webhooks import applying
from tests import pages

PAGE = "docs/how-to/receive-a-webhook.md"
GITHUB, WAREHOUSE = pages.blocks(PAGE)
COMMANDS = [shlex.split(line) for line in re.findall(r"^manage\.py (.*)$", pages.text_of(PAGE), re.MULTILINE)]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run an example with the names that the page takes from the reader's project."""
    monkeypatch.setattr(applying, "declared", {**applying.declared})
    monkeypatch.setattr("idempotency.webhooks.intake.declared", applying.declared)

    return pages.run


def post(view: Any, body: Any, headers: Callable[[bytes], dict[str, str]]) -> Any:
    raw = json.dumps(body).encode()
    return view(RequestFactory().post("/", raw, content_type="application/json", headers=headers(raw)))


def test_github(run: Any) -> None:
    made: list[Any] = []
    model = SimpleNamespace(objects=SimpleNamespace(create=lambda **given: made.append(given)))
    (pattern,) = run(GITHUB, GITHUB_SECRET="s", Push=model)["urlpatterns"]

    def signed(raw: bytes) -> dict[str, str]:
        signature = hmac.new(b"s", raw, hashlib.sha256).hexdigest()
        names = {"X-GitHub-Event": "push", "X-GitHub-Delivery": "d1"}
        return {"X-Hub-Signature-256": f"sha256={signature}", **names}

    for status in ("applied", "duplicate"):
        assert json.loads(post(pattern.callback, {"ref": "main"}, signed).content) == {"status": status}
    assert made == [{"ref": "main"}]


def test_a_warehouse(run: Any) -> None:
    made: list[Any] = []
    model = SimpleNamespace(objects=SimpleNamespace(create=lambda **given: made.append(given["number"])))
    key = b"0123456789abcdef01234567"
    names = run(WAREHOUSE, WAREHOUSE_SECRET=f"whsec_{b64encode(key).decode()}", Move=model)

    def signed(raw: bytes) -> dict[str, str]:
        at = str(int(datetime.now(UTC).timestamp()))
        number = f"m{json.loads(raw)['number']}"
        digest = hmac.digest(key, f"{number}.{at}.".encode() + raw, "sha256")
        return {
            "webhook-id": number,
            "webhook-timestamp": at,
            "webhook-signature": f"v1,{b64encode(digest).decode()}",
        }

    for number in (2, 1):
        assert post(names["moved"], {"order": "o", "number": number}, signed).status_code == 200
    apply, replay = COMMANDS
    call_command(*apply, verbosity=0)
    assert made == [1, 2]
    with pytest.raises(CommandError, match="applied or missing"):
        call_command(*replay, "--operator", "ann")
