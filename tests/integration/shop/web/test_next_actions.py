"""The order's page with a channel of another package, whose shoppers go on in its own way."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django.utils.html import format_html

from payments.models import Attempt
from payments.providers import NextAction, Plugin, Renderer
from shop.models import Order
from tests.integration.shop.provider import ScriptedProvider
from tests.integration.shop.web.test_pages import form_of, pay
from tests.payments_settings import forget_plugins, plug_in

PACKAGE = "coins_for_the_shop"


class Coins(ScriptedProvider):
    """Its shoppers send money to an account of a bank."""

    def create(self, **given: Any) -> NextAction:
        super().create(**given)
        return NextAction(type="bank_details", url="https://coins.invalid/7", params={"iban": "DE02"})


@pytest.fixture
def coins(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Callable[[Renderer], Coins]]:
    """Set the channel up with this renderer."""

    def make(renderer: Renderer) -> Coins:
        made = Coins("coins", methods=("transfer",))
        plugin = Plugin(
            label="Coins & Co",
            build=lambda settings, limits: made,
            required=(),
            actions=("bank_details",),
            renderers={"bank_details": renderer},
        )
        plug_in(monkeypatch, settings, PACKAGE, plugin, PROVIDERS={"coins": {"BACKEND": PACKAGE}})
        return made

    yield make
    forget_plugins()


def test_a_next_step_of_its_own_stands_on_the_page(
    shopper: Client, order: Order, coins: Callable[[Renderer], Coins]
) -> None:
    provider = coins(
        Renderer(page=lambda action: format_html("<dl><dt>IBAN</dt><dd>{iban}</dd></dl>", **action.params))
    )
    path = f"/orders/{order.id.hex}"
    assert "<span>Coins &amp; Co</span>" in shopper.get(path).text
    assert pay(shopper, order, "coins")["Location"] == path
    shown = shopper.get(path).text
    assert "<h2>Pay with Coins &amp; Co</h2>" in shown
    assert "<dd>DE02</dd>" in shown
    assert "Waiting for your payment" in shown

    Attempt.objects.update(next_action_expires_at=timezone.now())
    over = shopper.get(path)
    assert ("This has expired." in over.text, b"DE02" in over.content) == (True, False)
    assert shopper.post(f"{path}/go-on", form_of(over, f"{path}/go-on"))["Location"] == path
    assert b"DE02" in shopper.get(path).content
    assert [method for method, _ in provider.calls] == ["create", "create"]
    assert Attempt.objects.count() == 1


def test_one_that_leads_elsewhere_is_followed_at_once(
    shopper: Client, order: Order, coins: Callable[[Renderer], Coins]
) -> None:
    coins(Renderer(page=lambda action: "go", redirects=True))
    assert pay(shopper, order, "coins")["Location"] == "https://coins.invalid/7"
    Attempt.objects.update(next_action_expires_at=timezone.now() + timedelta(hours=1))
    path = f"/orders/{order.id.hex}"
    assert "go" in shopper.get(path).text


def test_one_without_a_place_on_the_page_is_left_to_its_script(
    shopper: Client, order: Order, coins: Callable[[Renderer], Coins]
) -> None:
    coins(Renderer())
    pay(shopper, order, "coins")
    assert "Waiting for your payment" not in shopper.get(f"/orders/{order.id.hex}").text
