"""deploy/, the image and compose.yaml, read by the programs that use them."""

import ipaddress
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from payments.testing.relay import Reply, Server
from shop.devserver.guardian import Guardian
from tests.ports import free_port
from tests.running import is_up, until
from tests.sandbox import ROOT
from tests.system.cluster.deployment import DEPLOY, start_nginx, unit

EDGE, NO_EDGE = "127.0.0.1", "127.0.0.2"
UNITS = ["payonce-web@.service", "payonce-worker.service"]
HARDENED = {
    "User": "payonce",
    "UMask": "0077",
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectProc": "invisible",
    "RestrictNamespaces": "yes",
    "MemoryDenyWriteExecute": "yes",
    "SystemCallArchitectures": "native",
}


def test_no_header_moves_the_shop_to_another_path(tmp_path: Path, guardian: Guardian) -> None:
    (tmp_path / "echo.py").write_text(
        "def application(environ, start):\n"
        "    start('200 OK', [])\n"
        "    return [f\"{environ['SCRIPT_NAME']}|{environ['PATH_INFO']}\".encode()]\n"
    )
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "gunicorn", "--config", str(DEPLOY / "gunicorn.conf.py"), "echo:application"]
    environment = {**os.environ, "BIND": url.removeprefix("http://"), "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    guardian.start(command, log=tmp_path / "log", environment=environment, cwd=tmp_path)
    until(lambda: is_up(url))
    said = httpx.get(f"{url}/shop/x", headers={"SCRIPT_NAME": "/shop", "PATH_INFO": "/y"}, trust_env=False)
    assert said.text == "|/shop/x"


class Web(Server):
    """A web process's stand-in: answers with the headers it was sent; holds `/hold`."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self.over = threading.Event()
        super().__init__(self._answer)
        self._server.socket.listen(512)  # who come at the same instant
        self.port = self._server.server_port

    def _answer(self, asked: BaseHTTPRequestHandler, body: bytes) -> Reply | None:
        if asked.path == "/hold":
            self.held.append(asked.path)
            self.over.wait()
            return None
        headers = {name.lower(): value for name, value in asked.headers.items()}
        return Reply(status=200, body=json.dumps(headers).encode())


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    yield made
    made.over.set()
    made.stop()


@pytest.fixture
def nginx(open_folder: Path, web: Web, guardian: Guardian) -> str:
    """Its address, with `EDGE` for its edge."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    start_nginx(guardian, open_folder / "nginx", port=port, servers=[web.port])
    until(lambda: is_up(url))
    return url


def caller(nginx: str, *, source: str = EDGE, shopper: str = "203.0.113.7") -> httpx.Client:
    """Connects from `source` and says that it passes on what `shopper` asked by https."""
    headers = {"X-Forwarded-For": shopper, "X-Forwarded-Proto": "https"}
    return httpx.Client(base_url=nginx, transport=httpx.HTTPTransport(local_address=source), headers=headers)


def statuses(client: httpx.Client, method: str, path: str, times: int) -> list[int]:
    return [client.request(method, path).status_code for _ in range(times)]


def test_nginx_believes_the_edge_that_is_configured_and_nobody_else(nginx: str) -> None:
    with caller(nginx) as edge:
        said = edge.get("/").json()
        assert said["x-forwarded-proto"] == "https"
        assert said["x-forwarded-for"] == "203.0.113.7, 203.0.113.7"
        assert edge.get("/", headers={"X-Forwarded-Proto": "http"}).json()["x-forwarded-proto"] == "http"

    with caller(nginx, source=NO_EDGE) as stranger:
        said = stranger.get("/").json()
    assert said["x-forwarded-proto"] == "http"
    assert said["x-forwarded-for"].rpartition(", ")[2] == NO_EDGE


@pytest.mark.parametrize("path", ["/accounts/login/", "/admin/login/"])
def test_nginx_limits_logins_of_an_address(nginx: str, path: str) -> None:
    with caller(nginx) as guesser, caller(nginx, shopper="203.0.113.8") as other:
        assert set(statuses(guesser, "POST", path, 20)) == {200}
        assert any(guesser.post(path).status_code == 429 for _ in range(300))
        refused = guesser.post(path)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")
        assert refused.json()["code"] == "throttled"
        assert set(statuses(guesser, "GET", path, 30)) == {200}
        assert other.post(path).status_code == 200


def test_nginx_limits_forms_and_neither_the_api_nor_webhooks(nginx: str) -> None:
    with caller(nginx) as sender:
        for path in ("/api/v1/orders", "/webhooks/wechat"):
            assert set(statuses(sender, "POST", path, 200)) == {200}
        assert set(statuses(sender, "GET", "/basket", 200)) == {200}
        assert set(statuses(sender, "POST", "/basket/mug/add", 100)) == {200}
        assert any(sender.post("/basket/mug/add").status_code == 429 for _ in range(3000))


def test_nginx_limits_connections_of_an_address(nginx: str, web: Web) -> None:
    host, _, port = nginx.removeprefix("http://").rpartition(":")
    request = b"GET /hold HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 203.0.113.7\r\n\r\n"
    held = [socket.create_connection((host, int(port))) for _ in range(200)]
    try:
        for each in held:
            each.sendall(request)
        until(lambda: len(web.held) == 200)
        with caller(nginx) as one_more, caller(nginx, shopper="203.0.113.8") as other:
            assert one_more.get("/").status_code == 429
            assert other.get("/").status_code == 200
    finally:
        for each in held:
            each.close()


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_may_do_what_it_needs(name: str) -> None:
    text = (DEPLOY / "systemd" / name).read_text()
    assert HARDENED.items() <= unit(name).items()
    assert re.findall("SystemCallFilter=(.*)", text) == ["@system-service", "~@privileged @resources"]


@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_a_unit(name: str, tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd on this machine; get it with: apt-get install systemd")
    copy = tmp_path / name.replace("@", "@8000")
    text = (DEPLOY / "systemd" / name).read_text()
    text = text.replace("User=payonce\nGroup=payonce\n", f"User={os.getuid()}\nGroup={os.getgid()}\n")
    copy.write_text(re.sub("ExecStart=\\S+", f"ExecStart={sys.executable}", text))
    verified = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, check=False)
    assert [line for line in verified.stderr.splitlines() if tmp_path.name in line] == []


def test_the_image_is_of_one_digest_and_installs_by_hash() -> None:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    [base] = re.findall("^ARG PYTHON=(.*)$", text, re.M)
    assert re.fullmatch("python:3[.]13-slim@sha256:[0-9a-f]{64}", base)
    assert set(re.findall(r"^FROM (\S+)", text, re.M)) == {"${PYTHON}"}
    for command in re.findall("pip install (.*?)(?:&&|$)", text, re.M):
        assert "--no-deps" in command
        assert "--require-hashes" in command or "--no-index" in command
    assert re.search("^USER [1-9]", text, re.M)


def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return read


def test_every_container_is_closed() -> None:
    for name, service in compose()["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["read_only"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert service.get("cap_add", []) == (["CHOWN", "SETGID", "SETUID"] if name == "nginx" else []), name


def test_the_stores_are_reached_by_who_needs_them_with_a_password() -> None:
    file = compose()
    services = file["services"]
    assert file["networks"]["stores"] == {"internal": True}
    for store in ("postgres", "redis"):
        assert services[store]["networks"] == ["stores"]
    assert list(services["nginx"]["networks"]) == ["front"]
    assert [name for name, service in services.items() if "front" in service["networks"]] == ["web", "nginx"]
    environment = services["web"]["environment"]
    assert "${REDIS_PASSWORD:?" in environment["REDIS_URL"]
    assert "${POSTGRES_PASSWORD:?" in environment["DATABASE_URL"]
    assert "requirepass" in " ".join(services["redis"]["command"])


def test_web_believes_nginx_and_not_the_gateway() -> None:
    file = compose()
    [front] = file["networks"]["front"]["ipam"]["config"]
    nginx = file["services"]["nginx"]
    address = ipaddress.ip_address(nginx["networks"]["front"]["ipv4_address"])
    for name in ("TRUSTED_PROXIES", "FORWARDED_ALLOW_IPS"):
        assert file["services"]["web"]["environment"][name] == str(address)
    assert address in ipaddress.ip_network(front["subnet"])
    assert address not in ipaddress.ip_network(front["ip_range"])
    assert nginx["environment"]["PAYONCE_EDGE"] == front["gateway"] != str(address)
