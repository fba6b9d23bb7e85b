"""A sandbox that starts again: it remembers its key and the seed of its faults."""

import signal
from pathlib import Path
from typing import Any

from payments.providers import registry
from payments.providers.wechat.client import WeChatPay
from payments.providers.wechat.keys import keep_certificates
from tests.integration.payments.providers.conftest import waiting
from tests.sandbox import Sandbox

HALF = {"drop_rate": 0.5, "http_500_rate": 0.5}
ROUNDS = 6


def met(sandbox: Sandbox, *, seed: int | None = None) -> str:
    """List the fates of calls and notifications: ``5`` a 500, ``x`` a lost copy, ``.`` neither."""
    sandbox.faults(**dict.fromkeys(HALF, 0))
    numbers = [waiting(sandbox) for _ in range(ROUNDS)]
    sandbox.faults(**HALF, **({} if seed is None else {"seed": seed}))
    return "".join(fate for number in numbers for fate in (of_a_call(sandbox), of_a_notification(sandbox, number)))


def of_a_call(sandbox: Sandbox) -> str:
    return "5" if sandbox.http.get("/wechat/v3/certificates").status_code == 500 else "."


def of_a_notification(sandbox: Sandbox, number: str) -> str:
    before = lost(sandbox)
    sandbox.pay(number)
    return "x" if lost(sandbox) > before else "."


def lost(sandbox: Sandbox) -> int:
    return int(sandbox.http.get("/_control/deliveries").json()["lost"])


def rotate(sandbox: Sandbox, **more: Any) -> str:
    answer = sandbox.http.post("/_control/rotate", json={"channel": "wechat", **more})
    serial: str = answer.raise_for_status().json()["serial"]
    return serial


def wechat_with(folder: Path, sandbox: Sandbox) -> WeChatPay:
    settings = {**sandbox.channels()["wechat"], "PLATFORM_KEYS_DIR": str(folder)}
    made: Any = registry.build({"wechat": settings})["wechat"]
    assert isinstance(made, WeChatPay)
    return made


def test_ctrl_c_is_seen_in_the_exit_code(tmp_path: Path) -> None:
    assert Sandbox(tmp_path).stop(signal.SIGINT) == 130


def test_the_same_seed_is_the_same_faults_and_a_rotation_stays(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "sandbox")
    try:
        other, first = met(sandbox, seed=8), met(sandbox, seed=7)
        assert (first != other, set(first)) == (True, {"5", "x", "."})
        sandbox.reset_faults()
        second = rotate(sandbox, announce=True)
        assert rotate(sandbox) == second
        shared = Path(sandbox.keys.settings["WECHAT_PLATFORM_KEYS_DIR"])
        assert keep_certificates(shared, wechat_with(shared, sandbox).download_certificates()) == (second,)
        sandbox.faults(seed=7)
    finally:
        sandbox.stop()
    again = Sandbox(sandbox.folder)
    try:
        assert met(again) == first
        again.reset_faults()
        assert again.keys.platform_serial == sandbox.keys.platform_serial
        folder = tmp_path / "keys"
        folder.mkdir()
        keep_certificates(folder, {second: (shared / f"{second}.pem").read_bytes()})
        announced = wechat_with(folder, again).download_certificates()
        assert list(announced) == [second, again.keys.platform_serial]
    finally:
        again.stop()
