"""Payments without the shop: a hotel's bookings, its own users, a prefix of its own, three providers."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests import pages
from tests.foreign.foreign import PROJECT, ForeignProject, Server, environment_like
from tests.ports import free_port
from tests.running import until
from tests.sandbox import Sandbox

pytestmark = pytest.mark.timeout(300)  # the first test builds and installs

SHOP_IS_THERE = "import importlib.util, json; print(json.dumps(importlib.util.find_spec('shop') is not None))"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """The providers."""
    sandbox = Sandbox(tmp_path_factory.mktemp("sandbox"))
    yield sandbox
    sandbox.stop()


@pytest.fixture(scope="module", params=["numbers", "uuids"])
def hotel(
    request: pytest.FixtureRequest, beside: Path, sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ForeignProject]:
    """The project, migrated; its bookings have primary keys of either kind."""
    folder = tmp_path_factory.mktemp(request.param)
    project = ForeignProject(environment_like(beside, folder / "venv"), folder / "project", "with_payments")
    project.environment |= {"PROVIDERS": json.dumps(sandbox.channels()), "KEYS": request.param}
    with project.with_database():
        project.manage("makemigrations", "bookings", "--verbosity", "0")
        project.manage("migrate", "--verbosity", "0")
        yield project


@pytest.fixture(scope="module")
def open_hotel(hotel: ForeignProject) -> Iterator[httpx.Client]:
    """Its server, at the address that the providers have of it."""
    port = free_port()
    hotel.environment["BASE_URL"] = f"http://127.0.0.1:{port}"
    server = Server(hotel, port=port)
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
        yield client
    server.kill()


def test_the_page_shows_this_projects_code() -> None:
    code = "".join((PROJECT / name).read_text() for name in ("with_payments.py", "bookings/paying.py"))
    blocks = pages.blocks("docs/how-to/take-payments.md")
    assert len(blocks) == 3
    assert len(blocks[1].splitlines()) <= 30
    assert [block for block in blocks if _unindented(block) not in _unindented(code)] == []


def _unindented(code: str) -> str:
    return "\n".join(line.strip() for line in code.splitlines())


def test_it_is_sound_without_the_shop(hotel: ForeignProject) -> None:
    assert hotel.evaluate(SHOP_IS_THERE) is False
    hotel.manage("check", "--fail-level", "WARNING", "--database", "default")
    hotel.manage("makemigrations", "--check", "payments", "idempotency")


def test_a_stranger_sees_and_refunds_nothing_where_the_project_lets_everybody_in(
    open_hotel: httpx.Client,
) -> None:
    """Not even a payment that has no owner."""
    booked = open_hotel.post("/bookings/", data={"method": "wechat", "nobody": "1"}).raise_for_status().json()
    address, key = f"/pay/payments/{booked['payment']}", {"Idempotency-Key": uuid4().hex}
    assert open_hotel.get(address).status_code == 403
    asked = open_hotel.post(f"{address}/refunds", json={"amount_minor": 1, "reason": "x"}, headers=key)
    assert asked.status_code == 403


@pytest.mark.parametrize("method", ["wechat.native", "alipay.page", "stripe"])
def test_a_booking_is_paid_once_and_given_back(
    hotel: ForeignProject, open_hotel: httpx.Client, sandbox: Sandbox, method: str
) -> None:
    sandbox.faults(duplicates=3)
    booked = open_hotel.post("/bookings/", data={"method": method}).raise_for_status().json()

    def state() -> tuple[str, int, int, int]:
        ((status, times),) = hotel.rows(
            "SELECT status, paid_times FROM bookings_booking WHERE id::text = %s", booked["booking"]
        )
        ((paid, refunded),) = hotel.rows(
            "SELECT paid_minor, refunded_minor FROM payments_payment WHERE id = %s", booked["payment"]
        )
        return status, times, paid, refunded

    assert state() == ("open", 0, 0, 0)
    if booked["way"] == "redirect":
        httpx.get(booked["link"], follow_redirects=True, timeout=60, trust_env=False).raise_for_status()
    sandbox.pay(booked["number"])
    until(lambda: state() == ("paid", 1, 12_800, 0), seconds=60)
    back = open_hotel.post(f"/bookings/refunds/{booked['booking']}").raise_for_status().json()
    assert back["status"] in {"succeeded", "refunded"}
    until(lambda: state() == ("refunded", 1, 12_800, 12_800), seconds=60)
    charge = sandbox.charges()[booked["number"]]
    assert (charge["charged_minor"], charge["refunded_minor"]) == (12_800, 12_800)
    assert hotel.rows("SELECT count(*) FROM payments_anomaly") == [(0,)]
