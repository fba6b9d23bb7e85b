"""The timer keeps WeChat's next certificate before the platform signs with it."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.db import transaction

from idempotency.ids import new_id
from payments import tasks
from payments.attempts import certificates
from payments.channels import configured
from payments.errors import SignatureInvalid
from tests.integration.payments.providers.conftest import Listener, asked, listener
from tests.payments_settings import changed
from tests.sandbox import Sandbox, a_sandbox

__all__ = ["listener"]

pytestmark = pytest.mark.django_db(transaction=True)
sandbox = pytest.fixture(a_sandbox, scope="module")


@pytest.fixture
def folder(sandbox: Sandbox, settings: Any, tmp_path: Path) -> Iterator[Path]:
    """Our platform keys: the certificates up to the one that signs now."""
    rotate(sandbox)
    channels = {"wechat": sandbox.channels()["wechat"]}
    ours = tmp_path / "platform"
    shutil.copytree(channels["wechat"]["PLATFORM_KEYS_DIR"], ours)
    channels["wechat"]["PLATFORM_KEYS_DIR"] = str(ours)
    settings.PAYMENTS = changed(PROVIDERS=channels)
    configured.forget()
    certificates.refresh()  # believed for the public key's signature
    for path in ours.glob("PUB_KEY_ID_*.pem"):
        path.rename(tmp_path / path.name)
    configured.look_now()
    yield ours
    configured.forget()


def rotate(sandbox: Sandbox, **more: Any) -> str:
    wanted = {"channel": "wechat", **more}
    return str(sandbox.http.post("/_control/rotate", json=wanted).raise_for_status().json()["serial"])


def opened(listener: Listener) -> str:
    """The number of a new trade."""
    number = new_id().hex
    asked(configured.current()["wechat"], number, notify_url=listener.url)
    return number


def notified(sandbox: Sandbox, listener: Listener, number: str) -> tuple[dict[str, str], bytes]:
    """The notification that a trade was paid."""
    sandbox.pay(number)
    return listener.next()


def read(notice: tuple[dict[str, str], bytes]) -> Any:
    headers, body = notice
    return configured.current()["wechat"].read_notification(headers=headers, body=body, now=datetime.now(UTC))


def serials(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.pem") if not path.stem.startswith("PUB_KEY_ID_")}


def test_the_next_certificate_is_kept_before_the_platform_signs_with_it(
    sandbox: Sandbox, folder: Path, listener: Listener
) -> None:
    before = notified(sandbox, listener, opened(listener))
    assert read(before).facts
    announced = rotate(sandbox, announce=True)
    assert announced not in serials(folder)
    assert tasks.refresh_certificates(timestamp=0) == 1
    assert announced in serials(folder)
    assert rotate(sandbox) == announced
    after = notified(sandbox, listener, opened(listener))
    given = {name.lower(): value for name, value in after[0].items()}
    assert given["wechatpay-serial"] == announced
    assert read(after).facts
    assert read(before).facts, "what was on its way under the former certificate"
    assert certificates.refresh() == 0


def test_an_unknown_serial_is_refused_and_asks_nobody(
    sandbox: Sandbox, folder: Path, listener: Listener, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = opened(listener)
    serial = rotate(sandbox)
    headers, body = notified(sandbox, listener, number)
    calls: list[object] = []
    monkeypatch.setattr(httpx.Client, "send", lambda *args, **kwargs: calls.append(args))
    kept = {name: value for name, value in headers.items() if name.lower().startswith("wechatpay-")}
    answer = client.post("/webhooks/wechat", body, content_type="application/json", headers=kept)
    assert (answer.status_code, answer.json()["code"]) == (401, "FAIL")
    assert calls == []
    assert serial not in serials(folder)
    monkeypatch.undo()
    with pytest.raises(SignatureInvalid):
        read((headers, body))
    assert certificates.refresh() == 0, "its own signature proves nothing of a key that we do not hold"
    for path in folder.parent.glob("PUB_KEY_ID_*.pem"):
        shutil.copy(path, folder)
    configured.look_now()
    assert certificates.refresh() == 1
    assert read((headers, body)).facts


def test_what_cannot_be_had_or_kept_is_logged_for_the_next_run(
    sandbox: Sandbox, folder: Path, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    wechat, before = settings.PAYMENTS["PROVIDERS"]["wechat"], serials(folder)
    address, wechat["API_URL"] = wechat["API_URL"], "http://127.0.0.1:1"
    configured.forget()
    assert certificates.refresh() == 0
    assert serials(folder) == before
    assert "could not be had" in caplog.text
    wechat["API_URL"] = address
    configured.forget()
    announced = rotate(sandbox, announce=True)
    configured.current()
    (folder / f"{announced}.pem").write_text("something else")
    assert certificates.refresh() == 0
    assert "WECHAT_PLATFORM_KEYS_DIR" in caplog.text
    assert (folder / f"{announced}.pem").read_text() == "something else"


def test_never_inside_a_transaction_and_never_where_wechat_is_not_configured(folder: Path, settings: Any) -> None:
    with transaction.atomic(), pytest.raises(RuntimeError, match="inside a transaction"):
        certificates.refresh()
    settings.PAYMENTS = changed(PROVIDERS={})
    configured.forget()
    assert certificates.refresh() == 0
