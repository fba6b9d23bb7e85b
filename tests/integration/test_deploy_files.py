"""The files under deploy/, the image and compose.yaml: what they promise, read by the programs that use them."""

import os
import sys
from pathlib import Path

import httpx

from shop.guardian import Guardian
from tests.ports import free_port
from tests.running import until
from tests.sandbox import ROOT

DEPLOY = ROOT / "deploy"


def is_up(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def test_no_header_moves_the_shop_to_another_path(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text(
        "def application(environ, start):\n"
        "    start('200 OK', [])\n"
        "    return [f\"{environ['SCRIPT_NAME']}|{environ['PATH_INFO']}\".encode()]\n"
    )
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "gunicorn", "--config", str(DEPLOY / "gunicorn.conf.py")]
    environment = {**os.environ, "BIND": url.removeprefix("http://"), "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    guardian = Guardian()
    try:
        guardian.start([*command, "echo:application"], log=tmp_path / "log", environment=environment, cwd=tmp_path)
        until(lambda: is_up(url), 60)
        told = httpx.get(f"{url}/shop/x", headers={"SCRIPT_NAME": "/shop", "PATH_INFO": "/y"}, trust_env=False)
        assert told.text == "|/shop/x"
    finally:
        guardian.stop_all()
