"""The shop behind ASGI."""

import gc
import sys
from importlib import import_module

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections

from tests.running import until


def sessions() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


@pytest.mark.django_db(transaction=True)
async def test_no_request_leaves_a_connection_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 60)  # as in the shop's settings
    monkeypatch.delitem(sys.modules, "shop.asgi", raising=False)
    transport = httpx.ASGITransport(import_module("shop.asgi").application)
    before = await sync_to_async(sessions)()
    gc.disable()
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            for _ in range(5):
                assert (await client.get("/")).status_code == 200
        await sync_to_async(until)(lambda: sessions() <= before)
    finally:
        gc.enable()
        await sync_to_async(connections.close_all)()
