"""The whole shop as `make run` starts it, in a process of its own."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import redis

from tests import readymade
from tests.ports import free_ports, is_free
from tests.sandbox import ROOT, START_SECONDS, is_up

# for a client that many threads share: beyond its limits the pool closes connections that are in use (httpcore 1.0.9,
# encode/httpcore issue 1110)
UNLIMITED = httpx.Limits(max_connections=None, max_keepalive_connections=None)

MUG = {"items": [{"sku": "mug", "quantity": 1}]}


class RunningShop:
    """`python -m shop.devserver.run` with servers of its own; `stop` it in the end.

    Args:
        more: of the environment.
        first: whether everything is to be made from nothing; else an empty folder gets the data of a first start.
    """

    def __init__(
        self, folder: Path, *, web: int = 1, more: Mapping[str, str] | None = None, first: bool = False
    ) -> None:
        if not first and not any(folder.iterdir()):
            readymade.lay_out(folder)
        self.folder = folder
        self.port, sandbox_port = _free_ports(web)
        self.urls = [f"http://127.0.0.1:{self.port + 10 * index}" for index in range(web)]
        self.url = self.urls[0]
        self.sandbox_url = f"http://127.0.0.1:{sandbox_port}"
        environment = readymade.clean_environment() | {
            "PORT": str(self.port),
            "SANDBOX_PORT": str(sandbox_port),
            "WEB": str(web),
            "DATA_DIR": str(folder),
            "LOG_LEVEL": "ERROR",
            **(more or {}),
        }
        self._log = (folder / "run.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shop.devserver.run"],
            cwd=ROOT,
            env=environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._wait_until_ready()

    def database(self) -> psycopg.Connection:
        """A connection to its database; close it."""
        url = f"postgresql://postgres@/payonce?host={self.folder}/run/postgresql"
        return psycopg.connect(url, autocommit=True)

    def redis(self) -> redis.Redis:
        """A client of its Redis; close it."""
        return redis.Redis.from_url(f"unix://{self.folder}/run/redis/redis.sock?db=0", socket_timeout=30)

    def api(self, *, token: str = "demo-token", url: str | None = None) -> httpx.Client:
        """A client of the API as the demo user; close it."""
        headers = {"Authorization": f"Token {token}"}
        return httpx.Client(
            base_url=url or self.url, headers=headers, timeout=60, trust_env=False, limits=UNLIMITED
        )

    def stop(self) -> int:
        """Ctrl-C; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        code = self.process.wait(START_SECONDS)
        self._log.close()
        return code

    def log(self) -> str:
        """What it printed."""
        return (self.folder / "run.log").read_text()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        for url in self.urls:
            while not is_up(f"{url}/readyz"):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError(f"the shop did not start:\n{self.log()}")
                time.sleep(0.1)


def order_mug(api: httpx.Client, key: str) -> httpx.Response:
    """Order one under a key."""
    return api.post("/api/v1/orders", json=MUG, headers={"Idempotency-Key": key})


def open_payment(api: httpx.Client, order_id: str, channel: str = "wechat") -> Any:
    """Begin to pay an order; the payment."""
    headers = {"Idempotency-Key": uuid4().hex}
    answer = api.post(f"/api/v1/orders/{order_id}/payment", json={"channel": channel}, headers=headers)
    return answer.raise_for_status().json()


def pay_as_shopper(sandbox: httpx.Client, attempt: Mapping[str, Any]) -> None:
    """Go on where the attempt says, the page of Alipay or the code of WeChat, and pay."""
    if attempt["next_action"]["type"] == "redirect":
        sandbox.get(attempt["next_action"]["url"], follow_redirects=True).raise_for_status()
    sandbox.post("/_control/pay", json={"out_trade_no": attempt["out_trade_no"]}).raise_for_status()


def _free_ports(web: int) -> tuple[int, int]:
    """A first port whose followers in steps of ten are free as well, and one for the sandbox."""
    while True:
        first, sandbox = free_ports(2)
        wanted = [first + 10 * index for index in range(web)]
        if sandbox not in wanted and all(map(is_free, wanted)):
            return first, sandbox


def until(condition: Callable[[], Any], seconds: float = START_SECONDS) -> Any:
    """Poll until `condition` is truthy; its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)
    return value
