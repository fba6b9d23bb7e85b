"""The system under test: all that `make run` starts, with handles to break it by.

`shop.devserver.run.Run` starts it. The lab is its supervisor: what ends by itself is started again, as systemd or
a cluster would. Used by one thread (processes are started and ended here alone), beside clients in any number.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import psycopg
import redis

from shop.devserver.guardian import kill
from shop.devserver.plan import Plan
from shop.devserver.run import Run
from tests.ports import free_ports
from tests.readymade import SET_BY_RUN
from tests.running import is_up
from tests.system.chaos.network import Network

PROVIDER_URLS = ("WECHAT_API_URL", "ALIPAY_GATEWAY_URL", "STRIPE_API_URL")
READY_SECONDS = 60.0
SERVER_TRIES = 5


class LabError(Exception):
    """The lab itself failed: nothing can be said about the shop."""


class Lab(Run):
    """One shop; `start` it, break it, `stop` it.

    Args:
        folder: its data; of a short path, readable by PostgreSQL's user.
        durable: as in production; False where nothing kills PostgreSQL.
        clocks: web process's number -> by how many seconds its clock is ahead.
        more: of the environment.
    """

    def __init__(
        self,
        folder: Path,
        *,
        web: int = 3,
        durable: bool = True,
        clocks: Mapping[int, float] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        sandbox_port, self._front_port, *others = free_ports(2 + 2 * web)
        ports = others[:web]
        super().__init__(Plan(ports=tuple(ports), sandbox_port=sandbox_port, data_dir=folder), durable=durable)
        self.network = Network()
        self.down: set[str] = set()  # ended on purpose; not to be started again before the fault is over
        self._provider_ports = {f"web-{port}": wired for port, wired in zip(ports, others[web:], strict=True)}
        self._clocks = {f"web-{ports[index]}": ahead for index, ahead in (clocks or {}).items()}
        self._more = dict(more or {})

    @property
    def webs(self) -> list[str]:
        """Names of the web processes."""
        return [f"web-{port}" for port in self.plan.ports]

    @property
    def urls(self) -> list[str]:
        """Their addresses, in the same order."""
        return [f"http://127.0.0.1:{port}" for port in self.plan.ports]

    def start(self) -> None:
        """As `make run`."""
        self.network.balance(port=self._front_port, over=list(self.plan.ports))
        with _environment(
            DJANGO_SETTINGS_MODULE="tests.system.chaos.settings",
            PUBLIC_URL=f"http://127.0.0.1:{self._front_port}",
            LOG_LEVEL="ERROR",
            **self._more,
        ):
            super().start()

    def stop(self) -> None:
        """End everything; what keeps nothing of its own is not asked politely."""
        for child in self.children.values():
            kill(child.pid)
            child.wait()
        super().stop()
        self.network.close()

    def database(self) -> psycopg.Connection:
        """A connection of our own, not over a wire; close it."""
        return psycopg.connect(self.environment["DATABASE_URL"], autocommit=True, connect_timeout=10)

    def redis(self) -> redis.Redis:
        """The same of Redis."""
        return redis.Redis.from_url(self.environment["REDIS_URL"], socket_timeout=10)

    def sandbox(self) -> httpx.Client:
        """The same of the sandbox."""
        return httpx.Client(base_url=self.plan.sandbox_url, timeout=10, trust_env=False)

    def supervise(self) -> None:
        """Start again what has ended by itself."""
        for name, child in list(self.children.items()):
            if name not in self.down and child.poll() is not None:
                self.revive(name)

    def kill(self, name: str) -> None:
        """`kill -9` of the process and of what it started; it stays away until `revive`."""
        self.down.add(name)
        child = self.children[name]
        kill(child.pid)
        child.wait()
        self.guardian.stop(child)

    def kill_inner(self, name: str) -> None:
        """`kill -9` of gunicorn's worker alone, which its master replaces."""
        with suppress(psutil.Error):
            for inner in psutil.Process(self.children[name].pid).children():
                inner.kill()

    def revive(self, name: str) -> None:
        self.down.discard(name)
        super().revive(name)

    def pause(self, name: str) -> None:
        """The process stands still; its connections stay."""
        _signal_group(self.children[name], signal.SIGSTOP)

    def resume(self, name: str) -> None:
        _signal_group(self.children[name], signal.SIGCONT)

    def pause_server(self, name: str, *, resume: bool = False) -> None:
        """The same with PostgreSQL (all of its processes) or Redis."""
        for process in self._family(name):
            with suppress(psutil.Error):
                process.resume() if resume else process.suspend()

    def kill_server(self, name: str, *, number: signal.Signals = signal.SIGKILL) -> None:
        """End PostgreSQL or Redis at once: SIGKILL, or SIGQUIT (an immediate shutdown)."""
        family = self._family(name)
        for process in family if number == signal.SIGKILL else family[:1]:
            with suppress(psutil.Error):
                process.send_signal(number)
        psutil.wait_procs(family, timeout=30)
        for child in self._servers(name):
            self.guardian.stop(child)

    def revive_server(self, name: str) -> None:
        """Start PostgreSQL or Redis again on the data that it left, and wait until it answers."""
        start = {"postgresql": self.servers._start_postgres, "redis": self.servers._start_redis}[name]
        for left in reversed(range(SERVER_TRIES)):
            try:
                start()
                return
            except Exception as error:
                if not left:
                    raise LabError(f"{name} does not come back: {error}") from error
                time.sleep(0.3)

    def wait_until_ready(self) -> None:
        """Until every web process and the sandbox answer.

        Raises:
            LabError: one does not.
        """
        deadline = time.monotonic() + READY_SECONDS
        for url in [*(f"{url}/readyz" for url in self.urls), f"{self.plan.sandbox_url}/healthz"]:
            while not is_up(url):
                self.supervise()
                if time.monotonic() > deadline:
                    raise LabError(f"{url} does not answer; logs are in {self.logs}")
                time.sleep(0.1)

    def _spawn(self, name: str, command: list[str]) -> None:
        self.commands[name] = command
        environment = self.environment | (self._wired(name) if name.startswith("web-") else {})
        if name in self._clocks:
            environment["CHAOS_CLOCK_SECONDS"] = str(self._clocks[name])
        self.children[name] = self.guardian.start(command, log=self.logs / f"{name}.log", environment=environment)

    def _wired(self, name: str) -> dict[str, str]:
        """The addresses of the stores and the providers as this web process sees them."""
        folder = self.plan.data_dir / "net" / name
        sockets = Path(self.environment["DATABASE_URL"].partition("?host=")[2])
        redis_socket = Path(urlsplit(self.environment["REDIS_URL"]).path)
        self.network.lay_unix(f"{name} postgresql", here=folder / ".s.PGSQL.5432", there=sockets / ".s.PGSQL.5432")
        self.network.lay_unix(f"{name} redis", here=folder / "redis.sock", there=redis_socket)
        port = self._provider_ports[name]
        self.network.lay_tcp(f"{name} provider", port=port, to_port=self.plan.sandbox_port)
        wired = {
            "DATABASE_URL": self.environment["DATABASE_URL"].replace(str(sockets), str(folder)),
            "REDIS_URL": f"unix://{folder / 'redis.sock'}?db=0",
        }
        for setting in PROVIDER_URLS:
            wired[setting] = self.environment[setting].replace(f":{self.plan.sandbox_port}", f":{port}")
        return wired

    def _servers(self, name: str) -> list["subprocess.Popen[bytes]"]:
        """The server's process, unless another fault has ended it."""
        program = {"postgresql": "postgres", "redis": "redis-server"}[name]
        return [child for child in self.guardian._children if Path(child.args[0]).name == program]

    def _family(self, name: str) -> list[psutil.Process]:
        """The server's process, then those that it started."""
        try:
            found = [psutil.Process(child.pid) for child in self._servers(name)]
            return [*found, *(one for first in found for one in first.children(recursive=True))]
        except psutil.Error:
            return []

    def _tell(self) -> None:
        """Nothing: the addresses are ours alone."""


@contextmanager
def _environment(**wanted: str) -> Iterator[None]:
    """Our own environment without what names other servers, and with what is `wanted`."""
    before = dict(os.environ)
    for name in SET_BY_RUN:
        os.environ.pop(name, None)
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _signal_group(child: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    if child.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
