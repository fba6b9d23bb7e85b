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


async def test_concurrent_duplicates_on_one_event_loop_do_not_share_a_transaction() -> None:
    transport = httpx.ASGITransport(ASGIHandler())  # the application itself, as a server calls it
    visitor = httpx.AsyncClient(transport=transport, base_url="http://testserver")
    await visitor.post("/async", headers=OTHER)
    answers = await asyncio.gather(*(visitor.post("/async", headers=KEY) for _ in range(8)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert 201 in {answer.status_code for answer in answers}
    assert await Group.objects.acount() == 2
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert await LedgerEntry.objects.acount() == 2
