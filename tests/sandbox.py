"""The provider sandbox as a process of its own, for tests."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from payments.sandbox import keys, state
from tests.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 300.0  # a bound for a machine that does much else; one that ends says so at once


class Sandbox:
    """A running sandbox; `stop` it in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.keys = keys.Keys(folder)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "payments.sandbox", "--port", str(self.port), "--data-dir", str(folder)],
            cwd=ROOT,
        )
        self.http = httpx.Client(base_url=self.url, timeout=20, trust_env=False)
        deadline = time.monotonic() + START_SECONDS
        while not is_up(f"{self.url}/healthz"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError("the sandbox did not start")
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the process and wait for it; its exit code."""
        self.http.close()
        self._process.send_signal(number)
        return self._process.wait(START_SECONDS)

    def environment(self) -> dict[str, str]:
        """The channel settings by their environment names, pointing here."""
        return {
            **self.keys.settings,
            "WECHAT_API_URL": f"{self.url}/wechat",
            "ALIPAY_GATEWAY_URL": f"{self.url}/alipay/gateway.do",
            "STRIPE_API_URL": f"{self.url}/stripe",
        }

    def channels(self) -> dict[str, dict[str, str]]:
        """The same in the shape of `settings.PAYMENTS["PROVIDERS"]`."""
        return _by_channel(self.environment())

    def pay(self, out_trade_no: str) -> Any:
        """The shopper pays."""
        return self.http.post("/_control/pay", json={"out_trade_no": out_trade_no}).raise_for_status().json()

    def faults(self, **faults: Any) -> Any:
        """Misbehave; without any, show them."""
        how = {"method": "POST", "json": faults} if faults else {"method": "GET"}
        return self.http.request(url="/_control/faults", **how).raise_for_status().json()

    def reset_faults(self) -> None:
        """Behave."""
        self.http.post("/_control/faults", json={}).raise_for_status()

    def charges(self) -> dict[str, dict[str, Any]]:
        """What was really charged, by our number."""
        said = self.http.get("/_control/charges").raise_for_status().json()
        return {charge["out_trade_no"]: charge for charge in said}


def a_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Run a sandbox in a folder of its own, for `pytest.fixture`, which says how long."""
    made = Sandbox(tmp_path_factory.mktemp("sandbox"))
    yield made
    made.stop()


def is_up(url: str) -> bool:
    """Whether it answers 200."""
    try:
        return httpx.get(url, trust_env=False, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def channels_at(url: str) -> dict[str, dict[str, str]]:
    """The settings of every channel, with this process's keys and their providers all at `url`."""
    addresses = {"WECHAT_API_URL": url, "ALIPAY_GATEWAY_URL": f"{url}/gateway.do", "STRIPE_API_URL": url}
    return _by_channel({**state.keys().settings, **addresses})


def _by_channel(environment: dict[str, str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for name, value in environment.items():
        channel, _, field = name.partition("_")
        found.setdefault(channel.lower(), {})[field] = value
    return found
