"""Async views: never two requests in one transaction. What they share with others is in test_doors.py."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.core.handlers.asgi import ASGIHandler
from django.db import connections

from idempotency.models import LedgerEntry

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]

KEY, OTHER = ({"Idempotency-Key": f"8e03978e-40d5-43dd-bc93-6894a57f932{n}"} for n in range(2))


@pytest.fixture(autouse=True)
async def _no_connection_left_open(transactional_db: None) -> AsyncIterator[None]:
    """The test's own queries run in asgiref's shared thread; its connection would outlive the database."""
    yield
    await sync_to_async(connections.close_all)()


@pytest.fixture
def visitor() -> httpx.AsyncClient:
    """Call the application itself, as a server does."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(ASGIHandler()), base_url="http://testserver")


async def test_concurrent_duplicates_on_one_event_loop_do_not_share_a_transaction(
    visitor: httpx.AsyncClient,
) -> None:
    await visitor.post("/async", headers=OTHER)
    answers = await asyncio.gather(*(visitor.post("/async", headers=KEY) for _ in range(8)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert 201 in {answer.status_code for answer in answers}
    assert await Group.objects.acount() == 2
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert await LedgerEntry.objects.acount() == 2


async def test_a_key_on_two_lines_is_no_key(visitor: httpx.AsyncClient) -> None:
    """Under WSGI in test_served.py."""
    for other in (KEY, OTHER):
        answer = await visitor.post("/async", headers=[*KEY.items(), *other.items()])
        assert (answer.status_code, answer.json()["code"]) == (400, "idempotency_key_invalid")
