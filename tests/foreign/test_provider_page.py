"""The provider of docs/how-to/write-a-provider.md, in a project that has the wheels alone."""

import ast
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from payments import providers as public
from payments.testing.cases import CASES
from tests import pages
from tests.foreign.conftest import open_hotel
from tests.foreign.foreign import ForeignProject, run
from tests.running import until

PAGE = "docs/how-to/write-a-provider.md"
CODE, CERTIFYING, ACCOUNT = pages.blocks(PAGE)
LINES_MAX, WORDS_MAX = 70, 500
AMOUNT_MINOR = 12_800


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
        paid = httpx.post(f"{self.url}/shopper/{number}", params={"copies": copies}, trust_env=False)
        return bool(paid.raise_for_status().json())

    def charge(self, number: str) -> tuple[int, int, int]:
        """What was charged and given back, in its own books; how many copies were acknowledged."""
        found = httpx.get(f"{self.url}/shopper/{number}", trust_env=False).raise_for_status().json()
        return found["paid_minor"], found["refunded_minor"], found["acknowledged"]

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def hotel(beside: Path, tmp_path_factory: pytest.TempPathFactory) -> ForeignProject:
    """The project with the page's code as a module of its own."""
    project = ForeignProject(beside, tmp_path_factory.mktemp("acme") / "project", "with_payments")
    (project.folder / "acme.py").write_text(CODE)
    return project


@pytest.fixture(scope="module")
def acme(hotel: ForeignProject) -> Iterator[Acme]:
    """The provider's side."""
    acme = Acme(hotel)
    yield acme
    acme.stop()


@pytest.fixture(scope="module")
def client(hotel: ForeignProject, acme: Acme) -> Iterator[httpx.Client]:
    """A client of the project's server, with acme and no other provider."""
    providers: dict[str, dict[str, str]] = {}
    pages.run(ACCOUNT, PAYMENTS={"PROVIDERS": providers})
    providers["acme"] |= {"API_URL": acme.url, "MERCHANT": "m-1", "KEY": acme.key}
    with open_hotel(hotel, providers=providers) as client:
        yield client


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


def test_its_provider_is_certified(hotel: ForeignProject, acme: Acme) -> None:
    """By a script that asks for it as the page does."""
    assert CERTIFYING == "payments.testing.certify(PLUGIN, simulator)\n"
    done = run([str(hotel.python), str(hotel.folder / "certified.py"), acme.url, acme.key], hotel.environment)
    skipped = {"a void": "no money waits for a capture here", "a dispute": "the channel has no dispute"}
    assert json.loads(done.stdout) == {
        "passed": [name for case in CASES if (name := case.__name__.replace("_", " ")) not in skipped],
        "skipped": skipped,
    }


def test_it_takes_an_order_once_and_gives_it_back(hotel: ForeignProject, client: httpx.Client, acme: Acme) -> None:
    booked = client.post("/bookings/", data={"method": "acme"}).raise_for_status().json()
    number = booked["number"]
    assert (booked["way"], booked["link"]) == ("redirect", f"{acme.url}/shopper/{number}")
    assert hotel.booking(booked) == ("open", 0, 0, 0)
    assert acme.pay(number, copies=3)
    until(lambda: hotel.booking(booked) == ("paid", 1, AMOUNT_MINOR, 0))
    until(lambda: acme.charge(number) == (AMOUNT_MINOR, 0, 3))
    client.post(f"/bookings/refunds/{booked['booking']}").raise_for_status()
    until(lambda: hotel.booking(booked) == ("refunded", 1, AMOUNT_MINOR, AMOUNT_MINOR))
    assert acme.charge(number) == (AMOUNT_MINOR, AMOUNT_MINOR, 3)
    assert hotel.rows("SELECT verdict FROM payments_notification WHERE event_type = 'paid'") == [("applied",)]
    assert hotel.rows("SELECT count(*) FROM payments_anomaly") == [(0,)]
