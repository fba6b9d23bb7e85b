"""`arun`: the same for coroutine functions, whose queries share the transaction."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, connections

from idempotency import KeyReused, once

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
async def _no_connection_left_open(transactional_db: None) -> AsyncIterator[None]:
    """The test's own queries run in asgiref's shared thread; its connection would outlive the database."""
    yield
    await sync_to_async(connections.close_all)()


async def place(name: str = "order") -> dict[str, Any]:
    made = await Group.objects.acreate(name=f"{name} {uuid.uuid4()}")
    return {"id": made.pk, "in_transaction": await sync_to_async(lambda: connection.in_atomic_block)()}


@pytest.mark.parametrize("lease", [None, 30], ids=["atomic", "leased"])
async def test_copies_on_one_event_loop_happen_once(lease: Any) -> None:
    calls = [once("n", key="k", payload=1, lease=lease, wait=30).arun(place) for _ in range(8)]
    results = await asyncio.gather(*calls)
    assert results == [results[0]] * 8
    assert results[0]["in_transaction"] is (lease is None)
    with pytest.raises(KeyReused):
        await once("n", key="k", payload=2, lease=lease).arun(place)
    assert await Group.objects.acount() == 1
