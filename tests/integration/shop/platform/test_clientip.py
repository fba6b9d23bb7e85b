"""A wallet's payment is opened with the shopper's address, not with a proxy's."""

from ipaddress import ip_network
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from payments.errors import OutcomeUnknown
from payments.models import Attempt
from shop.models import Product
from tests.integration.shop.conftest import placed
from tests.integration.shop.web.test_pages import form_of

SHOPPER = "203.0.113.7"


def test_on_the_page(settings: Any, shopper: Client, demo: User, mug: Product, channels: Any) -> None:
    """While the provider does not answer, the address that it was sent is stored."""
    settings.TRUSTED_PROXIES = [ip_network("127.0.0.1")]
    channels["wechat"].fails(OutcomeUnknown("late"), "create", "query")
    path = f"/orders/{placed(demo, mug=1).id.hex}"
    fields = form_of(shopper.get(path), f"{path}/pay") | {"channel": "wechat", "method": "h5"}
    shopper.post(f"{path}/pay", fields, REMOTE_ADDR="127.0.0.1", headers={"X-Forwarded-For": SHOPPER})
    assert Attempt.objects.get().payer == {"client_ip": SHOPPER}
