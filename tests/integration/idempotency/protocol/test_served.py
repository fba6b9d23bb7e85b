"""The small API behind servers: headers, bodies that are cut, and one event loop."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from typing import Any
from uuid import uuid4

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.core.handlers.asgi import ASGIHandler
from django.db import connections
from django.test import Client

from idempotency.models import LedgerEntry
from tests.integration.idempotency.conftest import Effects
from tests.ports import free_port
from tests.processes import on_the_tests_database
from tests.running import is_up, until
from tests.sandbox import ROOT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]
KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"


@pytest.fixture(scope="module")
def served(django_db_setup: None) -> Iterator[str]:
    """Its address; one worker, which its master replaces when it dies."""
    url = f"127.0.0.1:{free_port()}"
    settings = {"DJANGO_SETTINGS_MODULE": "tests.integration.idempotency.protocol.served", "LOG_LEVEL": "ERROR"}
    command = [sys.executable, "-m", "gunicorn", "django.core.wsgi:get_wsgi_application()", "--bind", url]
    server = subprocess.Popen(
        [*command, "--worker-class", "gthread", "--log-level", "critical", "--no-control-socket"],
        cwd=ROOT,
        env=on_the_tests_database() | settings,
    )
    try:
        until(lambda: is_up(f"http://{url}/healthz"))
        yield f"http://{url}"
    finally:
        server.terminate()
        server.wait(30)


def test_a_key_on_two_lines_is_no_key(effects: Effects, served: str) -> None:
    key, other = str(uuid4()), str(uuid4())
    with httpx.Client(base_url=served, trust_env=False) as client:

        def post(*lines: str) -> httpx.Response:
            return client.post("/long", headers=[("Idempotency-Key", line) for line in lines])

        for lines in ((key, key), (key, other), (f'"{key}"', f'"{key}"'), (key, f'"{key}"'), (f"{key},{other}",)):
            answer = post(*lines)
            assert (answer.status_code, answer.json()["code"]) == (400, "idempotency_key_invalid"), lines
        assert effects() == 0
        assert post(key).status_code == 200
        assert post(f'"{key}"').headers["Idempotent-Replayed"] == "true"
        assert effects() == 1


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b'{"items": [1, 2]}'),
        ("application/x-www-form-urlencoded", b"item=7&quantity=100"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nten\r\n--b--\r\n',
        ),
    ],
)
def test_a_body_that_was_cut_is_refused_and_leaves_its_key_to_the_whole(
    effects: Effects, served: str, content_type: str, body: bytes
) -> None:
    headers = {"Idempotency-Key": str(uuid4()), "Content-Type": content_type, "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    address = httpx.URL(served)
    with socket.create_connection((address.host, address.port or 80), timeout=30) as client:
        client.sendall(f"POST /long HTTP/1.1\r\nHost: {address.host}\r\n{lines}\r\n".encode() + body[:-12])
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")
    assert effects() == 0
    assert httpx.post(f"{served}/long", content=body, headers=headers, trust_env=False).status_code == 200
    assert effects() == 1


class Gone(BytesIO):
    """The stream of a sender that went away."""

    def read(self, size: int | None = -1) -> bytes:
        raise ConnectionResetError


@pytest.mark.parametrize(
    "server", [{"HTTP_TRANSFER_ENCODING": "chunked"}, {"wsgi.input_terminated": True}], ids=["HTTP/1.1", "HTTP/2"]
)
def test_a_body_without_a_length_is_refused_where_django_takes_it_for_empty(
    effects: Effects, server: dict[str, Any]
) -> None:
    def post(body: BytesIO, **server: Any) -> Any:
        client = Client(headers={"Idempotency-Key": KEY})
        return client.generic("POST", "/long", **server, **{"wsgi.input": body})

    answer = post(BytesIO(b"item=1"), **server)
    assert (answer.status_code, answer.json()["code"], effects()) == (411, "malformed", 0)
    assert post(Gone(), **{"wsgi.input_terminated": True}).status_code == 400
    assert (post(BytesIO(), **{"wsgi.input_terminated": True}).status_code, effects()) == (200, 1)


@pytest.fixture
async def visitor(transactional_db: None) -> AsyncIterator[httpx.AsyncClient]:
    """Call the ASGI application itself, as a server does."""
    yield httpx.AsyncClient(transport=httpx.ASGITransport(ASGIHandler()), base_url="http://testserver")
    await sync_to_async(connections.close_all)()  # asgiref's shared thread would outlive the database


async def test_concurrent_duplicates_on_one_event_loop_do_not_share_a_transaction(
    visitor: httpx.AsyncClient,
) -> None:
    await visitor.post("/async", headers={"Idempotency-Key": f"{KEY}1"})
    answers = await asyncio.gather(*(visitor.post("/async", headers={"Idempotency-Key": KEY}) for _ in range(8)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert 201 in {answer.status_code for answer in answers}
    assert await Group.objects.acount() == 2
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert await LedgerEntry.objects.acount() == 2


async def test_a_key_on_two_lines_is_no_key_under_asgi_either(visitor: httpx.AsyncClient) -> None:
    for other in (KEY, f"{KEY}1"):
        answer = await visitor.post("/async", headers=[("Idempotency-Key", KEY), ("Idempotency-Key", other)])
        assert (answer.status_code, answer.json()["code"]) == (400, "idempotency_key_invalid")
