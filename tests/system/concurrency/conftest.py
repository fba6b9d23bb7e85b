"""The shop with three web processes, its worker and the sandbox, and what its callers and shoppers do."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.conftest import a_folder_of_its_own
from tests.running import RunningShop


@pytest.fixture(scope="module")
def shop() -> Iterator[RunningShop]:
    with a_folder_of_its_own() as folder:
        running = RunningShop(folder, web=3)
        yield running
        assert running.stop() == 0


@pytest.fixture
def api(shop: RunningShop) -> Iterator[httpx.Client]:
    with shop.api() as client:
        yield client


@pytest.fixture
def sandbox(shop: RunningShop) -> Iterator[httpx.Client]:
    """The sandbox's control calls; well-behaved again afterwards."""
    with httpx.Client(base_url=shop.sandbox_url, timeout=30, trust_env=False) as client:
        yield client
        faults = {name: type(value)(0) for name, value in client.get("/_control/faults").json().items()}
        client.post("/_control/faults", json=faults).raise_for_status()


def place(client: httpx.Client, key: str) -> httpx.Response:
    body = {"items": [{"sku": "mug", "quantity": 1}]}
    return client.post("/api/v1/orders", json=body, headers={"Idempotency-Key": key})


def pay(api: httpx.Client, order_id: str, channel: str, key: str | None = None) -> httpx.Response:
    headers = {"Idempotency-Key": key or uuid4().hex}
    return api.post(f"/api/v1/orders/{order_id}/payment", json={"channel": channel}, headers=headers)


def shopper_pays(sandbox: httpx.Client, attempt: dict[str, Any]) -> None:
    if attempt["next_action"]["type"] == "redirect":
        sandbox.get(attempt["next_action"]["url"], follow_redirects=True).raise_for_status()
    sandbox.post("/_control/pay", json={"out_trade_no": attempt["out_trade_no"]}).raise_for_status()


def charges(sandbox: httpx.Client) -> dict[str, tuple[int, int]]:
    told = sandbox.get("/_control/charges").json()
    return {charge["out_trade_no"]: (charge["charged_minor"], charge["refunded_minor"]) for charge in told}
