"""Changed key files are used without a restart; what cannot be used changes nothing."""

import gc
import logging
import os
import socket
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from payments.channels import configured
from payments.providers import registry
from tests.integration.payments.channels.conftest import counted
from tests.system.secrets.conftest import (
    ALIPAY,
    API_V3_KEY,
    PLATFORM,
    Files,
    alipay_notice,
    certificate,
    is_accepted,
    key,
    private_pem,
    public_pem,
    stripe_notice,
    wechat_notice,
)

NEXT = 10
NEXT_API_V3_KEY = "b" * 16 + "2" * 16


def wechat_platform_key(files: Files, serial: str, pem: bytes) -> Any:
    """(notice by the old key, by the new one, add the new key, take the old away)."""
    (old,) = Path(files.channels["wechat"]["PLATFORM_KEYS_DIR"]).glob("*.pem")
    return (
        lambda: wechat_notice(by=key(PLATFORM), serial=old.stem),
        lambda: wechat_notice(by=key(NEXT), serial=serial),
        lambda: files.put(f"platform/{serial}.pem", pem),
        lambda: (old.unlink(), configured.look_now()),
    )


def wechat_certificate(files: Files) -> Any:
    return wechat_platform_key(files, *certificate(key(NEXT)))


def wechat_public_key(files: Files) -> Any:
    return wechat_platform_key(files, "PUB_KEY_ID_0119000000012026112100000001", public_pem(key(NEXT)))


def wechat_api_v3_key(files: Files) -> Any:
    (held,) = Path(files.channels["wechat"]["PLATFORM_KEYS_DIR"]).glob("*.pem")

    def notice(api_v3_key: str) -> Any:
        return wechat_notice(by=key(PLATFORM), serial=held.stem, api_v3_key=api_v3_key)

    return (
        lambda: notice(API_V3_KEY),
        lambda: notice(NEXT_API_V3_KEY),
        lambda: files.put("api_v3_key", f"{NEXT_API_V3_KEY}\n{API_V3_KEY}\n".encode()),
        lambda: files.put("api_v3_key", f"{NEXT_API_V3_KEY}\n".encode()),
    )


def alipay_public_key(files: Files) -> Any:
    old, new = public_pem(key(ALIPAY)), public_pem(key(NEXT))
    return (
        lambda: alipay_notice(by=key(ALIPAY)),
        lambda: alipay_notice(by=key(NEXT)),
        lambda: files.put("alipay.pem", old + new),
        lambda: files.put("alipay.pem", new),
    )


def stripe_webhook_secret(files: Files) -> Any:
    return (
        lambda: stripe_notice(by="whsec_first"),
        lambda: stripe_notice(by="whsec_second"),
        lambda: files.put("stripe_hook", b"whsec_second\nwhsec_first\n"),
        lambda: files.put("stripe_hook", b"whsec_second\n"),
    )


@pytest.mark.parametrize(
    "rotation",
    [wechat_certificate, wechat_public_key, wechat_api_v3_key, alipay_public_key, stripe_webhook_secret],
)
def test_a_new_key_beside_the_old_one_is_used_without_a_restart(
    files: Files, rotation: Callable[[Files], Any]
) -> None:
    old, new, add, take_away = rotation(files)
    assert (is_accepted(old()), is_accepted(new())) == (True, False)
    add()
    assert (is_accepted(old()), is_accepted(new())) == (True, True)
    take_away()
    assert (is_accepted(old()), is_accepted(new())) == (False, True)


def is_next(held: Any) -> bool:
    return private_pem(held) == private_pem(key(NEXT))


def sent_authorization(channel: str) -> str:
    """What the provider in use signs or sends its next request with."""
    provider: Any = configured.current()[channel]
    if channel == "wechat":
        return f"{provider._signer._serial} {provider._headers('GET', '/v3/x', '')['Authorization']}"
    return str(provider._secret_key)


def test_our_own_key_and_its_certificate_are_used_when_both_are_there(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    first = sent_authorization("wechat").split()[0]
    serial, pem = certificate(key(NEXT))
    files.put("merchant.pem", private_pem(key(NEXT)))
    assert sent_authorization("wechat").split()[0] == first, "the key without its certificate is half a change"
    assert "WECHAT_MCH_CERT_FILE" in caplog.text
    files.put("merchant_cert.pem", pem)
    assert sent_authorization("wechat").split()[0] == serial
    assert f'serial_no="{serial}"' in sent_authorization("wechat")
    assert is_next(configured.current()["wechat"]._signer._key)  # type: ignore[attr-defined]


def test_other_secrets_are_used_without_a_restart(files: Files) -> None:
    assert sent_authorization("stripe") == "sk_test_first"
    files.put("stripe_key", b"sk_test_second\n")
    assert sent_authorization("stripe") == "sk_test_second"
    files.put("app.pem", private_pem(key(NEXT)))
    assert is_next(configured.current()["alipay"]._key)  # type: ignore[attr-defined]


def test_nothing_is_built_while_no_file_changes_and_only_what_has_changed_is(files: Files) -> None:
    before = configured.current()
    configured.look_now()
    assert configured.current() is not None
    assert all(configured.current()[channel] is before[channel] for channel in before)
    files.put("stripe_key", b"sk_test_second")
    after = configured.current()
    assert [channel for channel in before if after[channel] is not before[channel]] == ["stripe"]


def test_a_file_is_looked_at_no_more_often_than_the_interval(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("payments.channels.configured.time.monotonic", lambda: now[0])
    files.put("stripe_key", b"sk_test_first")
    assert sent_authorization("stripe") == "sk_test_first"
    Path(files.channels["stripe"]["SECRET_KEY_FILE"]).write_bytes(b"sk_test_second")
    now[0] += configured.LOOK_SECONDS - 0.1
    assert sent_authorization("stripe") == "sk_test_first"
    now[0] += 0.1
    assert sent_authorization("stripe") == "sk_test_second"


def test_a_file_of_the_same_time_and_length_is_another_file(files: Files) -> None:
    """As `cp -p` and mounted secrets make them."""
    assert sent_authorization("stripe") == "sk_test_first"
    path = Path(files.channels["stripe"]["SECRET_KEY_FILE"])
    state = path.stat()
    files.put("stripe_key", b"sk_test_other")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert path.stat().st_size == state.st_size
    assert sent_authorization("stripe") == "sk_test_other"


def reloaded(channel: str) -> tuple[float, float]:
    """How often its keys were refused, and used."""
    return tuple(counted(configured.RELOADED, channel=channel, outcome=outcome) for outcome in ("refused", "used"))


WRONG = [
    ("wechat", "merchant.pem", "WECHAT_MCH_KEY_FILE", "half written"),
    ("wechat", "api_v3_key", "WECHAT_API_V3_KEY_FILE", "empty"),
    ("wechat", "platform", "WECHAT_PLATFORM_KEYS_DIR", "missing"),
    ("alipay", "alipay.pem", "ALIPAY_PUBLIC_KEY_FILE", "of another kind"),
    ("stripe", "stripe_hook", "STRIPE_WEBHOOK_SECRET_FILE", "of another kind"),
]


@pytest.mark.parametrize(("channel", "name", "setting", "kind"), WRONG)
def test_what_cannot_be_used_is_logged_once_and_the_former_keys_stay(
    files: Files, caplog: pytest.LogCaptureFixture, channel: str, name: str, setting: str, kind: str
) -> None:
    path = files.folder / name
    path = next(path.glob("*.pem")) if path.is_dir() else path
    good, before = path.read_bytes(), configured.current()
    refused, used = reloaded(channel)
    if kind == "missing":
        path.unlink()
    else:
        content = {
            "half written": good[: len(good) // 2],
            "empty": b"",
            "of another kind": b"sk_test_planted_secret",
        }
        files.put(str(path.relative_to(files.folder)), content[kind])
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            configured.look_now()
            assert configured.current()[channel] is before[channel]
    said = [record for record in caplog.records if record.name == "payments.channels.configured"]
    assert [record.levelname for record in said] == ["ERROR"]
    assert setting in said[0].getMessage()
    assert "planted" not in caplog.text
    assert reloaded(channel) == (refused + 1, used)
    files.put(str(path.relative_to(files.folder)), good)
    assert configured.current()[channel] is not before[channel]
    assert reloaded(channel) == (refused + 1, used + 1)


def test_a_wrong_file_of_one_channel_does_not_hold_up_another(files: Files) -> None:
    configured.current()
    files.put("merchant.pem", b"")
    files.put("stripe_key", b"sk_test_second")
    assert sent_authorization("stripe") == "sk_test_second"


def test_threads_always_get_a_whole_set_and_nobody_waits_for_a_reload(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, inside, go_on = configured.current(), threading.Event(), threading.Event()
    build = registry.build

    def slow(*args: Any, **kwargs: Any) -> Any:
        inside.set()
        assert go_on.wait(20)
        return build(*args, **kwargs)

    monkeypatch.setattr(registry, "build", slow)
    files.put("stripe_key", b"sk_test_second")
    one = threading.Thread(target=configured.current)
    one.start()
    assert inside.wait(20)
    assert configured.current() is before, "this thread goes on with what there is"
    go_on.set()
    one.join()
    assert sent_authorization("stripe") == "sk_test_second"


def test_the_connections_of_a_replaced_provider_end_with_its_last_call(files: Files) -> None:
    answers: list[int] = []

    def call() -> None:
        provider: Any = configured.current()["stripe"]
        answers.append(provider._http.get(f"{files.channels['stripe']['API_URL']}/v1/x").status_code)

    with socket.create_server(("127.0.0.1", 0)) as server:
        files.channels["stripe"]["API_URL"] = f"http://127.0.0.1:{server.getsockname()[1]}"
        running = threading.Thread(target=call)
        running.start()
        server.settimeout(20)
        line, _ = server.accept()
    with line:
        line.settimeout(20)
        assert line.recv(65_536).endswith(b"\r\n\r\n")
        replaced = weakref.ref(configured.current()["stripe"])
        files.put("stripe_key", b"sk_test_second")
        assert sent_authorization("stripe") == "sk_test_second"
        assert replaced() is not None, "a call is running on it"
        line.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")
        running.join(20)
        assert answers == [404]
        gc.collect()
        assert replaced() is None
        assert line.recv(1) == b"", "its connection is closed"
