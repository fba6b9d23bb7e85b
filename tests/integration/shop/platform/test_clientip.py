"""A wallet's payment is opened with the shopper's address, not with a proxy's."""

from ipaddress import ip_network
from typing import Any

import pytest
from django.test import Client

from payments.errors import OutcomeUnknown
from payments.models import Attempt
from shop.models import Order, Product
from tests.integration.shop.conftest import Caller
from tests.integration.shop.web.test_pages import form_of

SHOPPER = "203.0.113.7"


@pytest.fixture
def order(settings: Any, caller: Caller, mug: Product, channels: Any) -> Order:
    """To be paid at a provider that does not answer: what it was sent is stored then."""
    settings.TRUSTED_PROXIES = [ip_network("127.0.0.1")]
    channels["wechat"].failing, channels["wechat"].failure = frozenset({"create", "query"}), OutcomeUnknown("late")
    caller.order("mug", 1, key="o")
    return Order.objects.get()


def test_by_the_api(caller: Caller, order: Order) -> None:
    caller.http.defaults["REMOTE_ADDR"] = "127.0.0.1"
    body = {"channel": "wechat", "method": "h5"}
    caller.post(f"orders/{order.id.hex}/payment", body, key="p", **{"X-Forwarded-For": f"198.51.100.1, {SHOPPER}"})
    assert Attempt.objects.get().payer == {"client_ip": SHOPPER}


def test_on_the_page(shopper: Client, order: Order) -> None:
    path = f"/orders/{order.id.hex}"
    fields = form_of(shopper.get(path), f"{path}/pay") | {"channel": "wechat", "method": "h5"}
    shopper.post(f"{path}/pay", fields, REMOTE_ADDR="127.0.0.1", headers={"X-Forwarded-For": SHOPPER})
    assert Attempt.objects.get().payer == {"client_ip": SHOPPER}
