"""The shop over real HTTP with the real sandbox; no call out in an open transaction."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection

from payments.channels import configured as channels
from payments.channels import limits
from payments.providers import registry
from payments.providers.base import Provider
from shop.models import Product
from tests.payments_settings import changed, limited
from tests.sandbox import Sandbox, a_sandbox
from tests.system.money.till import MUGS, PRICE_MINOR, Till

sandbox_of_money = pytest.fixture(a_sandbox, scope="session")


@pytest.fixture(autouse=True)
def calls_in_a_transaction(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Fail the test if a call to a provider goes out while a transaction is open.

    Every provider's way out is `httpx.Client.send`, Stripe's library included (`payments.providers.transport`).
    Kept and judged at the end, because a timer goes on after whatever one row's work raises.
    """
    send, found = httpx.Client.send, []

    def guarded(self: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        if connection.in_atomic_block:  # of this thread: each has a connection of its own
            found.append(f"{request.method} {request.url}")
            raise AssertionError(f"{found[-1]} inside a transaction")
        return send(self, request, **options)

    monkeypatch.setattr(httpx.Client, "send", guarded)
    yield found
    assert found == []


@pytest.fixture(scope="session")
def providers(sandbox_of_money: Sandbox) -> Iterator[dict[str, Provider]]:
    """Build the providers once: checking private keys takes longer than a test."""
    built = registry.build(sandbox_of_money.channels(), limits=limits.outbound)
    yield built
    for provider in built.values():
        provider._http.close()  # type: ignore[attr-defined]


@pytest.fixture
def till(
    sandbox_of_money: Sandbox,
    providers: dict[str, Provider],
    live_server: Any,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    calls_in_a_transaction: list[str],
) -> Iterator[Till]:
    """A shop with mugs on the shelf, its channels at a sandbox that behaves well at first."""
    settings.PAYMENTS = limited(CALLS_PER_SECOND=1000)  # time passes faster here than where the limit was chosen
    monkeypatch.setattr(channels, "current", lambda: providers)
    settings.PAYMENTS = changed(BASE_URL=live_server.url, PROVIDERS={name: {} for name in providers})
    sandbox_of_money.reset_faults()
    Product.objects.create(sku="mug", name="Mug", picture="mug", price_minor=PRICE_MINOR, stock=MUGS)
    till = Till(sandbox_of_money, User.objects.create_user("ann", password="ann"))
    till.forget_the_past()
    yield till
    sandbox_of_money.reset_faults()
