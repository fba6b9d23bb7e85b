"""A charset that is no text, sent to the shop as deploy/ starts it: through nginx, to a real web process."""

import secrets
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shop.devserver.guardian import Guardian
from shop.devserver.plan import Plan, complete
from tests.ports import free_ports
from tests.processes import on_the_tests_database
from tests.running import is_up, until
from tests.sandbox import ROOT
from tests.system.cluster.deployment import exec_start
from tests.system.test_deploy_files import caller, nginx

__all__ = ["nginx"]

ADDRESSES = ["/", "/accounts/login/", "/api/v1/products", "/api/v1/orders"]
ADDRESSES += [f"/webhooks/{channel}" for channel in ("wechat", "alipay", "stripe")]
CHARSETS = ["hex", "rot13", "zip", "idna"]
FORM = "multipart/form-data; boundary=x"
PART = b'--x\r\nContent-Disposition: form-data; name="a"\r\nContent-Type: text/plain; charset=%s\r\n\r\n\xff\r\n--x--\r\n'


@pytest.fixture
def web(transactional_db: None, open_folder: Path, guardian: Guardian) -> Any:
    """In place of the one that answers nginx in the tests of its file: gunicorn, over the tests' database."""
    port, sandbox_port = free_ports(2)
    url = f"http://127.0.0.1:{port}"
    given = {"DEBUG": "0", "SECRET_KEY": secrets.token_urlsafe(50), "PUBLIC_URL": url, "LOG_LEVEL": "ERROR"}
    given |= {"BIND": f"127.0.0.1:{port}", "WEB_CONCURRENCY": "1"}
    plan = Plan(ports=(port,), sandbox_port=sandbox_port, data_dir=open_folder)
    environment = complete(plan, on_the_tests_database() | given)
    log = open_folder / "web.log"
    guardian.start(exec_start("payonce-web@.service"), log=log, environment=environment, cwd=ROOT)
    until(lambda: is_up(f"{url}/readyz"))
    return SimpleNamespace(port=port, log=log)


def test_it_is_refused_at_every_address_and_nobody_is_woken(web: Any, nginx: str) -> None:
    with caller(nginx) as client:

        def answered(method: str, address: str, content_type: str, charset: str) -> int:
            part = PART % charset.encode()
            return client.request(
                method, address, content=part, headers={"Content-Type": content_type}
            ).status_code

        answers = {
            (method, address, kind, charset): answered(
                method, f"{address}?a=%ff", f"{kind}; charset={charset}", charset
            )
            for method in ("GET", "POST")
            for address in ADDRESSES
            for kind in ("x/y", FORM)
            for charset in CHARSETS
        }
        assert {asked: status for asked, status in answers.items() if status != 400} == {}
        parts = [answered("POST", address, FORM, each) for address in ADDRESSES for each in CHARSETS]
    assert max(parts) < 500
    assert "Traceback" not in (written := web.log.read_text())
    assert '"level": "error"' not in written
