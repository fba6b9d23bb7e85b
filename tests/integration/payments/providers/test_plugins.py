"""Channels as plug-ins: found by place or by path, and named nowhere else."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client, override_settings

import payments
from payments.channels import configured
from payments.checks import check_channels
from payments.errors import SignatureInvalid
from payments.providers import registry
from payments.providers.base import Notice
from payments.providers.plugin import Acknowledgement, Plugin, Refusal
from tests.integration.shop.provider import ScriptedProvider
from tests.payments_settings import changed, forget_plugins, plug_in

ROOT = Path(payments.__file__).parent
NAMED = re.compile("|".join(registry.names()), re.IGNORECASE)


def test_no_code_but_a_plugins_own_names_a_channel() -> None:
    """Translations and migrations aside, which keep what was."""
    files = [file for kind in ("*.py", "*.html", "*.js") for file in ROOT.rglob(kind)]
    own = {ROOT / "providers" / name for name in registry.names()} | {ROOT / "sandbox", ROOT / "migrations"}
    elsewhere = [file for file in files if not own.intersection(file.parents)]
    assert len(elsewhere) > 50
    assert [file for file in elsewhere if NAMED.search(file.read_text())] == []


def acknowledge(refused: Refusal | None) -> Acknowledgement:
    return Acknowledgement(status=202, body=f"heard: {refused.status if refused else 'all'}")


class Coins(ScriptedProvider):
    """Takes no notification for genuine."""

    def read_notification(self, **_: Any) -> Notice:
        raise SignatureInvalid("not signed")


@pytest.fixture
def coins(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Any:
    """Another package's channel."""
    parts: dict[str, Any] = {"required": ("API_URL",), "parts": (), "acknowledge": acknowledge}
    plugin = Plugin(label="Coins", build=lambda *_: Coins("coins"), charges_again=True, **parts)
    account = {"BACKEND": "coins_for_payonce", "API_URL": "https://coins"}
    plug_in(monkeypatch, settings, account["BACKEND"], plugin, PROVIDERS={"coins": account})
    yield
    forget_plugins()


def test_a_channel_of_another_package_is_one_like_any_other(coins: None) -> None:
    assert check_channels(None) == []
    assert isinstance(configured.current()["coins"], Coins)
    assert configured.recharging() == {"coins"}


@pytest.mark.django_db
def test_its_notifications_are_answered_in_its_own_form(coins: None, client: Client) -> None:
    answer = client.post("/webhooks/coins", b"", content_type="text/plain")
    assert (answer.status_code, answer.content) == (202, b"heard: 401")
    assert client.post("/webhooks/shells", b"", content_type="text/plain").status_code == 404


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {},
            "'coins' is not a payment channel; known are alipay, paypal, stripe, wechat. Another one, or a further account, needs COINS_BACKEND",
        ),
        ({"BACKEND": "no.such.place"}, "BACKEND = 'no.such.place' is no package with a PLUGIN: No module"),
        ({"BACKEND": "payments.money"}, "BACKEND = 'payments.money' is no package with a PLUGIN"),
        (
            {"BACKEND": "payments.providers.wechat"},
            "PAYMENTS['PROVIDERS']['coins']['API_URL'] is not set, but other settings of coins are",
        ),
    ],
)
def test_a_channel_that_cannot_be_found_is_explained(fields: dict[str, str], why: str) -> None:
    with override_settings(PAYMENTS=changed(PROVIDERS={"coins": fields})):
        assert any(why in message.msg for message in check_channels(None))
