"""A shop for dying in: servers, sandbox, and one web worker that its master replaces at once."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
import redis

from shop.devserver.embedded import EmbeddedServers
from tests import readymade
from tests.conftest import guarded_folder
from tests.ports import free_port
from tests.running import MUG, is_up, until
from tests.sandbox import ROOT, Sandbox, a_sandbox

PYTHON = sys.executable


class MortalShop:
    """Calls to it, and looks into its stores."""

    def __init__(self, environment: dict[str, str], sandbox: Sandbox) -> None:
        self.environment = environment
        self.sandbox = sandbox
        self.url = environment["PUBLIC_URL"]
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


sandbox = pytest.fixture(a_sandbox, scope="package")


@pytest.fixture(scope="package")
def shop(sandbox: Sandbox) -> Iterator[MortalShop]:
    """Servers and web worker, ended afterwards."""
    with guarded_folder() as (guardian, folder), pytest.MonkeyPatch.context() as patched:
        readymade.lay_out(folder)
        for given in ("DATABASE_URL", "REDIS_URL"):
            patched.delenv(given)
        with EmbeddedServers(folder, durable=False) as servers:
            patched.undo()
            address = f"127.0.0.1:{free_port()}"
            environment = {
                **os.environ,
                **servers.environment,
                **sandbox.environment(),
                "DEBUG": "1",
                "DJANGO_SETTINGS_MODULE": "shop.settings",
                "PUBLIC_URL": f"http://{address}",
                "LOG_LEVEL": "ERROR",
            }
            command = [
                PYTHON,
                "-m",
                "gunicorn",
                "tests.system.crash.wsgi:application",
                "--preload",
                "--workers",
                "1",
            ]
            command += ["--bind", address, "--log-level", "critical", "--no-control-socket"]
            guardian.start(command, log=folder / "web.log", environment=environment, cwd=ROOT)
            made = MortalShop(environment, sandbox)
            until(lambda: is_up(f"{made.url}/readyz"))
            yield made
            made.close()
