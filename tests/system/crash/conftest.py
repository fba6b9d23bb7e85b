"""A shop for dying in: servers, sandbox, and one web worker that its master replaces at once."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
import redis

from shop.devserver.embedded import EmbeddedServers
from tests import readymade
from tests.conftest import a_folder_of_its_own
from tests.ports import free_port
from tests.running import until
from tests.sandbox import ROOT, START_SECONDS, Sandbox

PYTHON = sys.executable
MUG = {"items": [{"sku": "mug", "quantity": 1}]}


class MortalShop:
    """Calls to it, and looks into its stores."""

    def __init__(self, environment: dict[str, str], sandbox: Sandbox, url: str) -> None:
        self.environment = environment
        self.sandbox = sandbox
        self.url = url
        self.database = psycopg.connect(environment["DATABASE_URL"], autocommit=True)
        self.redis = redis.Redis.from_url(environment["REDIS_URL"])

    def post(
        self, path: str, body: Any = None, *, key: str, die_at: int = 0, token: str = "demo-token"
    ) -> httpx.Response | None:
        """The answer, or None if the worker died under the call."""
        headers = {"Authorization": f"Token {token}", "Idempotency-Key": key, "X-Fault-At": str(die_at)}
        # a connection of its own: a worker that died must not leave a half-open one behind for the next call
        try:
            return httpx.post(f"{self.url}{path}", json=body, headers=headers, trust_env=False)
        except httpx.TransportError:
            return None

    def answer(self, path: str, body: Any = None, *, key: str, token: str = "demo-token") -> httpx.Response:
        """The answer of a call that succeeds."""
        found = self.post(path, body, key=key, token=token)
        assert found is not None
        assert found.status_code == 201, found.text
        return found

    def new_order(self) -> str:
        order_id: str = self.answer("/api/v1/orders", MUG, key=uuid4().hex).json()["id"]
        return order_id

    def let_time_pass(self) -> None:
        """What a caller or the timer would wait for: leases end, markers expire, questions fall due."""
        self.database.execute(
            "UPDATE idempotency_ledgerentry SET lease_until = now() - interval '1 s' WHERE state = 'running'"
        )
        self.database.execute("UPDATE payments_attempt SET next_query_at = now() WHERE next_query_at IS NOT NULL")
        self.redis.flushdb()

    def rows(self, sql: str, *parameters: Any) -> list[Any]:
        return self.database.execute(sql, parameters).fetchall()

    def manage(self, *arguments: str) -> None:
        subprocess.run([PYTHON, "manage.py", *arguments], cwd=ROOT, env=self.environment, check=True)

    def wait_until_paid(self, order_id: str) -> None:
        until(lambda: self.rows("SELECT status FROM shop_order WHERE id = %s", UUID(order_id)) == [("paid",)])

    def close(self) -> None:
        self.database.close()
        self.redis.close()


@pytest.fixture(scope="package")
def shop() -> Iterator[MortalShop]:
    """Servers, sandbox and web worker, ended afterwards."""
    with a_folder_of_its_own() as folder:
        yield from _run_shop(folder)


def _run_shop(folder: Path) -> Iterator[MortalShop]:
    readymade.lay_out(folder)
    given = {name: os.environ.pop(name) for name in ("DATABASE_URL", "REDIS_URL")}
    servers = EmbeddedServers(folder, durable=False)
    try:
        servers.start()
    finally:
        os.environ.update(given)
    sandbox = Sandbox(folder / "sandbox")
    port = free_port()
    environment = {
        **os.environ,
        **servers.environment,
        **sandbox.environment(),
        "DEBUG": "1",
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "PUBLIC_URL": f"http://127.0.0.1:{port}",
        "LOG_LEVEL": "ERROR",
    }
    shop = None
    master = subprocess.Popen(
        [
            *(PYTHON, "-m", "gunicorn", "tests.system.crash.wsgi:application", "--preload", "--workers", "1"),
            *("--bind", f"127.0.0.1:{port}", "--log-level", "critical", "--no-control-socket"),
        ],
        cwd=ROOT,
        env=environment,
    )
    try:
        shop = MortalShop(environment, sandbox, environment["PUBLIC_URL"])
        until(lambda: _is_ready(shop.url))
        yield shop
    finally:
        if shop is not None:
            shop.close()
        master.terminate()
        master.wait(START_SECONDS)
        sandbox.stop()
        servers.stop()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
