"""Payments without the shop: bookings, users and a prefix of its own, three providers."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest

from tests import pages
from tests.foreign.conftest import open_hotel
from tests.foreign.foreign import PROJECT, ForeignProject, Server
from tests.ports import free_port
from tests.running import until
from tests.sandbox import Sandbox

HAS_READ = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 30 AND NOT granted"
SHOP_IS_THERE = "import importlib.util, json; print(json.dumps(importlib.util.find_spec('shop') is not None))"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """The providers."""
    sandbox = Sandbox(tmp_path_factory.mktemp("sandbox"))
    yield sandbox
    sandbox.stop()


@dataclass(frozen=True)
class Hotel:
    """The project that serves, and a client of it."""

    project: ForeignProject
    client: httpx.Client


@contextmanager
def keyed_by(keys: str, python: Path, folder: Path, sandbox: Sandbox) -> Iterator[Hotel]:
    """The one whose bookings have primary keys of this kind."""
    project = ForeignProject(python, folder, "with_payments")
    project.environment["KEYS"] = keys
    with open_hotel(project, providers=sandbox.channels()) as client:
        yield Hotel(project, client)


@pytest.fixture(scope="module")
def hotel(beside: Path, sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hotel]:
    with keyed_by("numbers", beside, tmp_path_factory.mktemp("hotel") / "project", sandbox) as hotel:
        yield hotel


def test_the_page_shows_this_projects_code() -> None:
    code = "".join((PROJECT / name).read_text() for name in ("with_payments.py", "bookings/paying.py"))
    blocks = pages.blocks("docs/how-to/take-payments.md")
    assert len(blocks) == 3
    assert len(blocks[1].splitlines()) <= 30
    assert [block for block in blocks if _unindented(block) not in _unindented(code)] == []


def _unindented(code: str) -> str:
    return "\n".join(line.strip() for line in code.splitlines())


def test_it_is_sound_without_the_shop(hotel: Hotel) -> None:
    assert hotel.project.evaluate(SHOP_IS_THERE) is False
    hotel.project.manage("check", "--fail-level", "WARNING", "--database", "default")
    hotel.project.manage("makemigrations", "--check", "payments", "idempotency")


def test_a_stranger_sees_and_refunds_nothing_where_the_project_lets_everybody_in(hotel: Hotel) -> None:
    """Not even a payment that has no owner."""
    booked = hotel.client.post("/bookings/", data={"method": "wechat", "nobody": "1"}).raise_for_status().json()
    address, key = f"/pay/payments/{booked['payment']}", {"Idempotency-Key": uuid4().hex}
    assert hotel.client.get(address).status_code == 403
    asked = hotel.client.post(f"{address}/refunds", json={"amount_minor": 1, "reason": "x"}, headers=key)
    assert asked.status_code == 403


@pytest.mark.parametrize("method", ["wechat.native", "alipay.page"])
def test_a_booking_is_paid_once_and_given_back(hotel: Hotel, sandbox: Sandbox, method: str) -> None:
    is_paid_once_and_given_back(hotel, sandbox, method)


def test_so_is_one_whose_primary_key_is_a_uuid(beside: Path, sandbox: Sandbox, tmp_path: Path) -> None:
    with keyed_by("uuids", beside, tmp_path / "project", sandbox) as hotel:
        is_paid_once_and_given_back(hotel, sandbox, "stripe")


def test_so_is_one_that_changes_between_the_reading_of_its_version_and_the_write(
    hotel: Hotel, sandbox: Sandbox
) -> None:
    """What was read before the change is read again; none counts twice."""
    port, project = free_port(), copy(hotel.project)
    project.environment = {**project.environment, "BASE_URL": f"http://127.0.0.1:{port}"}
    server = Server(project, "with_versions", port=port)
    sandbox.faults(duplicates=3, parallel=3)
    try:
        booked = httpx.post(f"{server.url}/bookings/", data={"method": "wechat"}, trust_env=False).json()
        with project.connect() as guest:
            guest.execute("SELECT pg_advisory_lock(30)")
            sandbox.pay(booked["number"])
            until(lambda: guest.execute(HAS_READ).fetchall() != [])
            changed = "UPDATE bookings_booking SET price_minor = 1, version = version + 1 WHERE id = %s"
            guest.execute(changed, [booked["booking"]])
        found = "SELECT status, paid_times, version FROM bookings_booking WHERE id = %s"
        until(lambda: project.rows(found, booked["booking"]) == [("paid", 1, 3)])
    finally:
        server.kill()
    charge = sandbox.charges()[booked["number"]]
    assert (charge["charged_minor"], charge["refunded_minor"]) == (12_800, 0)
    assert project.rows("SELECT paid_minor FROM payments_payment WHERE id = %s", booked["payment"]) == [(12_800,)]
    assert project.rows("SELECT count(*) FROM payments_anomaly") == [(0,)]


LISTS = (
    *("payment", "attempt", "refund", "paymentevent", "notification", "observation", "anomaly", "delivery"),
    *("journalentry", "journalline", "billcomparison", "difference", "auditentry"),
)


def test_an_operator_whose_account_has_a_name_and_nothing_else_works_in_the_admin(
    hotel: Hotel, sandbox: Sandbox
) -> None:
    booked = hotel.client.post("/bookings/", data={"method": "wechat"}).raise_for_status().json()
    sandbox.pay(booked["number"])
    paid = "SELECT paid_minor FROM payments_payment WHERE id = %s"
    until(lambda: hotel.project.rows(paid, booked["payment"]) == [(12_800,)])
    hotel.project.manage("createsuperuser", "--noinput", "--name", "kim", DJANGO_SUPERUSER_PASSWORD="in-the-lobby")
    page = f"/admin/payments/payment/{UUID(booked['payment'])}"
    with httpx.Client(base_url=hotel.client.base_url, trust_env=False, follow_redirects=True) as kim:
        kim.get("/admin/login/")
        form = {"username": "kim", "password": "in-the-lobby", "csrfmiddlewaretoken": kim.cookies["csrftoken"]}
        assert "Log out" in kim.post("/admin/login/?next=/admin/", data=form).text
        form["csrfmiddlewaretoken"] = kim.cookies["csrftoken"]
        for path in (*(f"/admin/payments/{name}/" for name in LISTS), f"{page}/change/", f"{page}/case.json"):
            assert (path, kim.get(path).status_code) == (path, 200)
        for term in ("ann", "a\0nn", "ann@hotel.example", booked["payment"], booked["booking"], "128.00"):
            assert (term, kim.get("/admin/payments/payment/find/", params={"q": term}).status_code) == (term, 200)
        asked = kim.get(f"{page}/refund/").text
        number = re.findall(r'name="number" value="([^"]+)"', asked)
        given = {"amount": "28.00", "reason": "rain", "number": number, **form}
        assert "28.00" in kim.post(f"{page}/refund/", data=given).text
    back = "SELECT refunded_minor + reserved_minor FROM payments_payment WHERE id = %s"
    assert hotel.project.rows(back, booked["payment"]) == [(2_800,)]
    assert hotel.project.rows("SELECT DISTINCT operator, operator_id FROM payments_auditentry") == [("kim", "kim")]
    code = (
        "from django.contrib import admin; from django.test import RequestFactory; from bookings.models import Guest;"
        "from idempotency.models import ConsumedMessage as Row; page, row = admin.site._registry[Row], Row(pk=1);"
        "request = RequestFactory().get('/'); request.user = Guest.objects.get(name='kim');"
        "Row.objects.create(pk=1, consumer='c', message_id='m'); page.log_decision(request, row, 'why')"
    )
    hotel.project.manage("shell", "-c", code)
    assert hotel.project.rows("SELECT user_id FROM django_admin_log") == [("kim",)]


def is_paid_once_and_given_back(hotel: Hotel, sandbox: Sandbox, method: str) -> None:
    sandbox.faults(duplicates=3)
    booked = hotel.client.post("/bookings/", data={"method": method}).raise_for_status().json()

    assert hotel.project.booking(booked) == ("open", 0, 0, 0)
    if booked["way"] == "redirect":
        httpx.get(booked["link"], follow_redirects=True, trust_env=False).raise_for_status()
    sandbox.pay(booked["number"])
    until(lambda: hotel.project.booking(booked) == ("paid", 1, 12_800, 0))
    back = hotel.client.post(f"/bookings/refunds/{booked['booking']}").raise_for_status().json()
    assert back["status"] in {"succeeded", "refunded"}
    until(lambda: hotel.project.booking(booked) == ("refunded", 1, 12_800, 12_800))
    charge = sandbox.charges()[booked["number"]]
    assert (charge["charged_minor"], charge["refunded_minor"]) == (12_800, 12_800)
    assert hotel.project.rows("SELECT count(*) FROM payments_anomaly") == [(0,)]
