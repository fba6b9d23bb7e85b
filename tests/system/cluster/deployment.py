"""The shop as deploy/ starts it, over stores that a test chooses."""

import configparser
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from string import Template

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shop.devserver.guardian import Guardian
from shop.devserver.plan import Plan, complete
from tests.ports import free_ports
from tests.readymade import clean_environment
from tests.running import is_up, until
from tests.sandbox import ROOT

DEPLOY = ROOT / "deploy"
STOCKED = """
import json
import django
django.setup()
from django.contrib.auth.models import User
from rest_framework.authtoken.models import Token
from shop.models import Product
user = User.objects.create_user("shopper")
Product.objects.create(sku="mug", name="Mug", price_minor=1990, currency="CNY", stock=100_000)
print(json.dumps(Token.objects.create(user=user).key))
"""


class Deployment:
    """Shop with DEBUG off and every file from deploy/, stopped by the guardian.

    Args:
        worker_database_url: of the worker and the migrations; None: as the web processes.

    Attributes:
        url: of nginx, with `web_urls` behind it.
        token: of the one user, for the API.
    """

    def __init__(
        self,
        guardian: Guardian,
        folder: Path,
        *,
        database_url: str,
        redis_url: str,
        worker_database_url: str | None = None,
    ) -> None:
        self._guardian = guardian
        self._folder = folder
        port, sandbox_port, *web_ports = free_ports(5)
        self.url = f"http://127.0.0.1:{port}"
        self.sandbox_url = f"http://127.0.0.1:{sandbox_port}"
        self.web_urls = [f"http://127.0.0.1:{each}" for each in web_ports]
        plan = Plan(ports=(port,), sandbox_port=sandbox_port, data_dir=folder)
        outside = clean_environment()
        ours = {
            "DEBUG": "0",
            "SECRET_KEY": secrets.token_urlsafe(50),
            "PUBLIC_URL": self.url,
            "TRUSTED_PROXIES": "127.0.0.1",
        }
        self._environment = complete(plan, outside | ours | {"REDIS_URL": redis_url, "LOG_LEVEL": "ERROR"})
        self._direct = {**self._environment, "DATABASE_URL": worker_database_url or database_url}
        self._environment["DATABASE_URL"] = database_url
        self._web_ports = web_ports
        self._web: list[subprocess.Popen[bytes]] = []
        self._python("manage.py", "migrate", "--verbosity", "0")
        self._python("manage.py", "collectstatic", "--noinput", "--verbosity", "0")
        self.token: str = json.loads(self._python("-c", STOCKED))
        self._start(port, sandbox_port)

    def api(self) -> httpx.Client:
        """A client of the API as the one user; close it."""
        headers = {"Authorization": f"Token {self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False)

    def kill_web(self, index: int) -> None:
        """kill -9 of a web process, master and worker."""
        process = self._web[index]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def start_web(self, index: int) -> None:
        """Start the process at that place, as its supervisor does after its end."""
        port = self._web_ports[index]
        environment = self._environment | {"BIND": f"127.0.0.1:{port}", "WEB_CONCURRENCY": "1"}
        process = self._guardian.start(
            exec_start("payonce-web@.service"), log=self._log(f"web-{port}"), environment=environment, cwd=ROOT
        )
        self._web[index : index + 1] = [process]

    def _start(self, port: int, sandbox_port: int) -> None:
        sandbox = [sys.executable, "-m", "payments.sandbox", "--port", str(sandbox_port), "--data-dir"]
        sandbox.append(str(self._folder / "sandbox"))
        self._guardian.start(sandbox, log=self._log("sandbox"), environment=self._environment)
        worker = exec_start("payonce-worker.service")
        self._guardian.start(worker, log=self._log("worker"), environment=self._direct, cwd=ROOT)
        for index in range(len(self._web_ports)):
            self.start_web(index)
        start_nginx(self._guardian, self._folder / "nginx", port=port, servers=self._web_ports)
        for url in [self.sandbox_url + "/", *(f"{each}/readyz" for each in [*self.web_urls, self.url])]:
            until(lambda url=url: is_up(url))

    def _python(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, env=self._direct, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def start_nginx(guardian: Guardian, folder: Path, *, port: int, servers: Iterable[int]) -> None:
    """nginx with deploy's settings, before the servers at these ports; its edge is 127.0.0.1."""
    program = program_of("nginx")
    folder.mkdir()
    given = {
        "PAYONCE_LISTEN": f"127.0.0.1:{port}",
        "PAYONCE_SERVERS": " ".join(f"server 127.0.0.1:{each} max_fails=1 fail_timeout=2s;" for each in servers),
        "PAYONCE_EDGE": "127.0.0.1",
    }
    template = Template((DEPLOY / "nginx" / "payonce.conf.template").read_text())
    # as `envsubst` does it: what it is not given, nginx's own variables, stays
    (folder / "payonce.conf").write_text(template.safe_substitute(given))
    shutil.copy(DEPLOY / "nginx" / "nginx.conf", folder)
    command = [program, "-c", str(folder / "nginx.conf"), "-p", str(folder)]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    guardian.start([*command, "-g", "daemon off;"], log=folder / "log")


def start_pgbouncer(guardian: Guardian, folder: Path, database_url: str, **changed: object) -> str:
    """PgBouncer with deploy's settings, but those `changed`; its address."""
    program = program_of("pgbouncer")
    folder.mkdir()
    given = conninfo_to_dict(database_url)
    name, sockets = given.pop("dbname"), Path(str(given["host"]))
    user = sockets.owner() if os.geteuid() == 0 else None  # it refuses to run as root
    if user is not None:
        shutil.chown(folder, user, user)
    template = Template((DEPLOY / "pgbouncer" / "pgbouncer.ini.template").read_text())
    text = template.substitute(PAYONCE_DATABASE=make_conninfo(**given), PAYONCE_SOCKETS=folder)
    text = text.replace("dbname=payonce", f"dbname={name}")
    for setting, value in changed.items():
        text = re.sub(f"^{setting} = .*$", f"{setting} = {value}", text, flags=re.MULTILINE)
    settings = folder / "pgbouncer.ini"
    settings.write_text(text)
    log, url = folder.parent / "pgbouncer.log", f"postgresql://postgres@/payonce?host={folder}&port=6432"
    process = guardian.start([program, str(settings)], log=log, user=user)
    until(lambda: takes_connections(url) or process.poll() is not None)
    assert process.poll() is None, log.read_text()
    return url


def takes_connections(url: str) -> bool:
    """Whether a database answers there."""
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def program_of(package: str) -> str:
    """The path of a program of the same name; skips the test where there is none."""
    program = shutil.which(package, path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip(f"no {package} on this machine; get it with: apt-get install {package}")
    return program


def unit(name: str) -> dict[str, str]:
    """The settings of the service of a systemd unit in deploy/."""
    read = configparser.RawConfigParser(strict=False)
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read(DEPLOY / "systemd" / name)
    return dict(read["Service"])


def exec_start(name: str) -> list[str]:
    """Return the command of a systemd unit in deploy/, with this machine's Python."""
    program, *arguments = shlex.split(unit(name)["ExecStart"])
    folder, _, called = program.rpartition("/")
    assert folder == "/srv/payonce/.venv/bin"
    return [str(Path(sys.executable).parent / called), *arguments]
