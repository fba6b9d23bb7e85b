"""Payments without the shop: a hotel's bookings, its own users, a prefix of its own, four providers.

The fourth is that of docs/how-to/write-a-provider.md, in a project that has the wheels and nothing else of ours.
"""

import ast
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from payments import providers as public
from payments.testing.cases import CASES
from tests import pages
from tests.foreign.foreign import PROJECT, ForeignProject, Server, run
from tests.ports import free_port
from tests.running import until
from tests.sandbox import Sandbox

PAGE = "docs/how-to/write-a-provider.md"
CODE, CERTIFYING, ACCOUNT = pages.blocks(PAGE)
LINES_MAX, WORDS_MAX = 70, 500
AMOUNT_MINOR = 12_800
SHOP_IS_THERE = "import importlib.util, json; print(json.dumps(importlib.util.find_spec('shop') is not None))"
MIGRATE = """
from django.core.management import call_command
call_command("makemigrations", "bookings", verbosity=0)
call_command("migrate", verbosity=0)
"""


class Acme:
    """Its side, as a process of its own; `stop` it in the end.

    Args:
        project: whose Python runs it.
    """

    def __init__(self, project: ForeignProject) -> None:
        self.key = uuid4().hex
        self._process = subprocess.Popen(
            [str(project.python), "-u", "acme_side.py", self.key],
            cwd=project.folder,
            env=project.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def pay(self, number: str, *, copies: int) -> bool:
        """Pay as the shopper; the notification goes out in copies."""
        paid = httpx.post(f"{self.url}/shopper/{number}", params={"copies": copies}, timeout=60, trust_env=False)
        return bool(paid.raise_for_status().json())

    def charge(self, number: str) -> tuple[int, int, int]:
        """What was charged and given back, in its own books; how many copies were acknowledged."""
        found = httpx.get(f"{self.url}/shopper/{number}", timeout=60, trust_env=False).raise_for_status().json()
        return found["paid_minor"], found["refunded_minor"], found["acknowledged"]

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """The other providers."""
    sandbox = Sandbox(tmp_path_factory.mktemp("sandbox"))
    yield sandbox
    sandbox.stop()


@pytest.fixture(scope="module")
def project(beside: Path, tmp_path_factory: pytest.TempPathFactory) -> ForeignProject:
    """The project with the page's code as a module of its own."""
    project = ForeignProject(beside, tmp_path_factory.mktemp("hotel") / "project", "with_payments")
    (project.folder / "acme.py").write_text(CODE)
    return project


@pytest.fixture(scope="module")
def acme(project: ForeignProject) -> Iterator[Acme]:
    acme = Acme(project)
    yield acme
    acme.stop()


@pytest.fixture(scope="module")
def hotel(project: ForeignProject, sandbox: Sandbox, acme: Acme) -> Iterator[httpx.Client]:
    """A client of the project's server, which stands where its providers look for it."""
    port, providers = free_port(), sandbox.channels()
    pages.run(ACCOUNT, PAYMENTS={"PROVIDERS": providers})
    providers["acme"] |= {"API_URL": acme.url, "MERCHANT": "m-1", "KEY": acme.key}
    project.environment |= {"PROVIDERS": json.dumps(providers), "BASE_URL": f"http://127.0.0.1:{port}"}
    with project.with_database():
        project.manage("shell", "--verbosity", "0", "-c", MIGRATE)
        server = Server(project, port=port)
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
            yield client
        server.kill()


def booking(hotel: httpx.Client, method: str, **fields: str) -> Any:
    return hotel.post("/bookings/", data={"method": method, **fields}).raise_for_status().json()


def test_the_page_shows_this_projects_code() -> None:
    code = "".join((PROJECT / name).read_text() for name in ("with_payments.py", "bookings/paying.py"))
    blocks = pages.blocks("docs/how-to/take-payments.md")
    assert len(blocks) == 3
    assert len(blocks[1].splitlines()) <= 30
    assert [block for block in blocks if _unindented(block) not in _unindented(code)] == []


def _unindented(code: str) -> str:
    return "\n".join(line.strip() for line in code.splitlines())


def test_the_page_is_short_and_needs_public_names_alone() -> None:
    assert len(pages.text_of(PAGE).split()) <= WORDS_MAX
    assert len([line for line in CODE.splitlines() if line]) <= LINES_MAX
    tree = list(ast.walk(ast.parse(CODE)))
    imported = {
        (node.module, name.name, name.asname)
        for node in tree
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if str(node.module).startswith(("payments", "idempotency"))
    }
    assert imported == {("payments", "providers", "pay")}
    attributes = [node for node in tree if isinstance(node, ast.Attribute)]
    named = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "pay"}
    assert named <= set(public.__all__)
    assert [node.attr for node in attributes if node.attr.startswith("_") and node.attr != "__init__"] == []


def test_its_provider_is_certified(project: ForeignProject, acme: Acme) -> None:
    """By a script that asks for it as the page does."""
    assert CERTIFYING == "payments.testing.certify(PLUGIN, simulator)\n"
    done = run(
        [str(project.python), str(project.folder / "certified.py"), acme.url, acme.key], project.environment
    )
    assert json.loads(done.stdout) == {
        "passed": [case.__name__.replace("_", " ") for case in CASES],
        "skipped": {},
    }


def test_it_is_sound_without_the_shop(project: ForeignProject, hotel: httpx.Client) -> None:
    assert project.evaluate(SHOP_IS_THERE) is False
    project.manage("check", "--fail-level", "WARNING", "--database", "default")
    project.manage("makemigrations", "--check", "payments", "idempotency")


def test_a_stranger_sees_and_refunds_nothing_where_the_project_lets_everybody_in(hotel: httpx.Client) -> None:
    """Not even a payment that has no owner."""
    address = f"/pay/payments/{booking(hotel, 'wechat', nobody='1')['payment']}"
    assert hotel.get(address).status_code == 403
    given, key = {"amount_minor": 1, "reason": "x"}, {"Idempotency-Key": uuid4().hex}
    assert hotel.post(f"{address}/refunds", json=given, headers=key).status_code == 403


@pytest.mark.parametrize("method", ["wechat.native", "alipay.page", "stripe", "acme"])
def test_a_booking_is_paid_once_and_given_back(
    project: ForeignProject, hotel: httpx.Client, sandbox: Sandbox, acme: Acme, method: str
) -> None:
    sandbox.faults(duplicates=3)
    booked = booking(hotel, method)
    number = booked["number"]

    def state() -> tuple[str, int, int, int]:
        query = "SELECT status, paid_times FROM bookings_booking WHERE id::text = %s"
        ((status, times),) = project.rows(query, booked["booking"])
        query = "SELECT paid_minor, refunded_minor FROM payments_payment WHERE id = %s"
        ((paid, refunded),) = project.rows(query, booked["payment"])
        return status, times, paid, refunded

    assert state() == ("open", 0, 0, 0)
    if method == "acme":
        assert (booked["way"], booked["link"]) == ("redirect", f"{acme.url}/shopper/{number}")
        assert acme.pay(number, copies=3)
        until(lambda: acme.charge(number) == (AMOUNT_MINOR, 0, 3))
    else:
        if booked["way"] == "redirect":
            httpx.get(booked["link"], follow_redirects=True, timeout=60, trust_env=False).raise_for_status()
        sandbox.pay(number)
    until(lambda: state() == ("paid", 1, AMOUNT_MINOR, 0))
    back = hotel.post(f"/bookings/refunds/{booked['booking']}").raise_for_status().json()
    assert back["status"] in {"succeeded", "refunded"}
    until(lambda: state() == ("refunded", 1, AMOUNT_MINOR, AMOUNT_MINOR))
    if method == "acme":
        assert acme.charge(number) == (AMOUNT_MINOR, AMOUNT_MINOR, 3)
    else:
        charge = sandbox.charges()[number]
        assert (charge["charged_minor"], charge["refunded_minor"]) == (AMOUNT_MINOR, AMOUNT_MINOR)
    assert project.rows("SELECT count(*) FROM payments_anomaly") == [(0,)]
