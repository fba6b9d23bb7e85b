"""`make run`: servers, demo data, sandbox, worker and web on this machine, until Ctrl-C.

Everything it starts ends with it (see `shop.devserver.guardian`); the data stays for the next start. Environment:
PORT, SANDBOX_PORT, WEB, DATA_DIR, the two server URLs and the channel settings (docs/reference/settings.md).
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from urllib.request import urlopen

from shop.devserver.cluster import EmbeddedError, end_of
from shop.devserver.embedded import EmbeddedServers
from shop.devserver.plan import Plan, RunError, complete, is_debug

READY_SECONDS = 60.0
THREADS = 8
RESTART_LIMIT = 20  # of each process

PYTHON = sys.executable


class Run:
    """A run of the whole shop: `start`, `watch`, `stop`."""

    def __init__(self, plan: Plan, *, durable: bool = True) -> None:
        self.plan = plan
        self.logs = plan.data_dir / "logs"
        self.servers = EmbeddedServers(plan.data_dir, durable=durable)
        self.guardian = self.servers.guardian
        self.environment: dict[str, str] = {}
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.commands: dict[str, list[str]] = {}
        self.restarts: Counter[str] = Counter()

    def start(self) -> None:
        for port in self.plan.ports:
            _must_be_free("PORT", port)
        _must_be_free("SANDBOX_PORT", self.plan.sandbox_port)
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"DATA_DIR {self.plan.data_dir} cannot be used: {error.strerror}.") from error
        step("keys")
        self.environment = complete(self.plan, os.environ)
        step("PostgreSQL and Redis")
        self.servers.start()
        self.environment |= self.servers.environment
        step("database schema")
        self._manage("migrate", "--verbosity", "0")
        if is_debug(self.environment):
            step("demo data")
            self._manage("load_demo")
        else:
            step("static files")
            self._manage("collectstatic", "--noinput", "--verbosity", "0")
        if self.environment.get("SANDBOX_URL"):
            step("provider sandbox")
            folder = str(self.plan.data_dir / "sandbox")
            number = str(self.plan.sandbox_port)
            command = [PYTHON, "-m", "payments.sandbox", "--port", number, "--data-dir", folder]
            self._spawn("sandbox", [*command, "--shop", self.plan.url])
            self._wait_for("sandbox", f"{self.plan.sandbox_url}/")
        step("worker")
        self._spawn("worker", [PYTHON, "manage.py", "procrastinate", "worker", "--concurrency", "4"])
        step(f"web ({len(self.plan.ports)})")
        for port in self.plan.ports:
            self._spawn(f"web-{port}", _web_command(port))
        for port in self.plan.ports:
            self._wait_for(f"web-{port}", f"http://127.0.0.1:{port}/readyz")
        self._print_addresses()

    def watch(self, *, parent: int | None) -> None:
        """Start again what ends, until the process `parent` is gone; None: for ever.

        Raises:
            RunError: a process ends again and again; the message quotes the end of its log.
        """
        while parent is None or os.getppid() == parent:
            for name, child in list(self.children.items()):
                if child.poll() is None:
                    continue
                if self.restarts[name] == RESTART_LIMIT:
                    raise RunError(f"{name} ended with {child.returncode}.\n{self._log_tail(name)}")
                self.restarts[name] += 1
                sys.stderr.write(f"{name} ended with {child.returncode}; starting it again\n")
                self.revive(name)
            time.sleep(0.5)

    def stop(self) -> None:
        self.servers.stop()

    def revive(self, name: str) -> None:
        """Start a process again, without waiting until it is ready."""
        self.guardian.stop(self.children[name])
        self._spawn(name, self.commands[name])

    def _manage(self, *arguments: str) -> None:
        done = subprocess.run(
            [PYTHON, "manage.py", *arguments], env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RunError(f"manage.py {arguments[0]} failed:\n{done.stdout}{done.stderr}")

    def _spawn(self, name: str, command: list[str]) -> None:
        self.commands[name] = command
        self.children[name] = self.guardian.start(
            command, log=self.logs / f"{name}.log", environment=self.environment
        )

    def _wait_for(self, name: str, url: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                with urlopen(url, timeout=2) as answer:  # noqa: S310  our own loopback address
                    if answer.status == 200:
                        return
            except OSError:
                pass
            if self.children[name].poll() is not None or time.monotonic() > deadline:
                raise RunError(f"{name} did not come up.\n{self._log_tail(name)}")
            time.sleep(0.05)

    def _log_tail(self, name: str) -> str:
        path = self.logs / f"{name}.log"
        return f"The end of {path}:\n{end_of(path)}"

    def _print_addresses(self) -> None:
        url = self.plan.url
        logins = [
            "demo / demo, other / other",
            "admin / admin",
            "Authorization: Token demo-token, Token other-token",
        ]
        shop, admin, api = logins if is_debug(self.environment) else [""] * 3
        lines = [
            "",
            f"  shop      {url}/            {shop}",
            f"  admin     {url}/admin/      {admin}",
            f"  API       {url}/api/docs/   {api}",
        ]
        if self.environment.get("SANDBOX_URL"):
            lines.append(f"  sandbox   {self.plan.sandbox_url}/            pays, and misbehaves on request")
        lines += [f"  also on   http://127.0.0.1:{port}/" for port in self.plan.ports[1:]]
        lines += [f"  logs      {self.logs}", "", "  Ctrl-C stops everything.", ""]
        print("\n".join(line.rstrip() for line in lines), flush=True)


def _web_command(port: int) -> list[str]:
    return [
        *(PYTHON, "-m", "gunicorn", "shop.wsgi:application"),
        *("--bind", f"127.0.0.1:{port}", "--workers", "1", "--worker-class", "gthread", "--threads", str(THREADS)),
        *("--keep-alive", "15", "--graceful-timeout", "5", "--log-level", "warning", "--no-control-socket"),
        *("--logger-class", "shop.platform.weblog.Logger", "--forwarder-headers", ""),
    ]


def _must_be_free(name: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise RunError(f"Port {port} is in use. Stop what listens there, or set {name} to another.") from None


def step(what: str) -> None:
    print(f"payonce: {what} …", flush=True)


def main() -> int:
    """Run until Ctrl-C or a termination signal, then return 0; 1 if something failed.

    With `--stop-with-parent` (as `make run` starts it) also until make is gone, even by kill -9.
    """
    parent = os.getppid() if "--stop-with-parent" in sys.argv[1:] else None
    # SIGINT too: a background shell starts its children deaf to it
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    run = None
    try:
        run = Run(Plan.of(os.environ))
        run.start()
        run.watch(parent=parent)
    except KeyboardInterrupt:
        step("stopping")
    except (RunError, EmbeddedError) as error:
        sys.stderr.write(f"payonce: {error}\n")
        return 1
    finally:
        for stop_signal in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(stop_signal, signal.SIG_IGN)  # a second Ctrl-C must not leave half of it running
        if run is not None:
            run.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
