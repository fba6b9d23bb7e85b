"""Channels as plug-ins: found by place or path, named nowhere else, with what they can do."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.template import engines
from django.test import Client, override_settings
from django.utils import timezone

import payments
from payments.api.serializers import PaymentSerializer
from payments.attempts import closing
from payments.channels import configured
from payments.checks import check_channels, must_be_sound
from payments.errors import MethodUnavailable, RefundUnavailable, SignatureInvalid
from payments.models import Anomaly, Attempt, Notification, Payment, Refund
from payments.operations.actions import NotDecidable, Operator
from payments.operations.actions import refund as refund_by_hand
from payments.providers import Renderer, registry
from payments.providers.actions import NextAction
from payments.providers.base import BillLine, Notice, TradeStatus
from payments.providers.plugin import Acknowledgement, Capability, Plugin
from payments.reconciliation import bills, reconcile
from payments.refunds import steps
from payments.settlement import anomalies
from payments.states import AnomalyKind
from tests.integration.payments.conftest import fold
from tests.integration.shop.provider import ScriptedProvider
from tests.payments_settings import ROOMS, Rooms, changed, forget_plugins, plug_in

pytestmark = pytest.mark.django_db(transaction=True)

PACKAGE = "coins_for_payonce"


ROOT = Path(payments.__file__).parent
NAMED = re.compile("|".join(registry.names()), re.IGNORECASE)


def test_no_code_but_a_plugins_own_names_a_channel() -> None:
    """Translations and migrations aside, which keep what was."""
    files = [file for kind in ("*.py", "*.html", "*.js") for file in ROOT.rglob(kind)]
    own = {ROOT / "providers" / name for name in registry.names()} | {ROOT / "sandbox", ROOT / "migrations"}
    elsewhere = [file for file in files if not own.intersection(file.parents)]
    assert len(elsewhere) > 50
    assert [file for file in elsewhere if NAMED.search(file.read_text())] == []


class Coins(ScriptedProvider):
    """Is paid by a tap, and by nothing that we know."""

    def read_notification(self, **_: Any) -> Notice:
        raise SignatureInvalid("not signed")

    def create(self, **given: Any) -> NextAction:
        super().create(**given)
        return NextAction(type="beep", url="coins:beep")

    zone = UTC

    def bill(self, *, day: date) -> tuple[BillLine, ...]:
        self.calls.append(("bill", str(day)))
        return ()


@pytest.fixture
def coins(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Callable[..., Coins]]:
    """Configure a channel that lacks these capabilities."""

    def make(*lacking: Capability, **more: Any) -> Coins:
        made = Coins("coins", methods=("tap", "shake"))
        plugin = Plugin(
            label="Coins",
            build=lambda settings, limits: made,
            required=("API_URL",),
            parts=(),
            acknowledge=lambda refused: Acknowledgement(status=202, body=f"heard: {refused and refused.status}"),
            capabilities=frozenset(Capability) - {*lacking},
            **more,
        )
        account = {"BACKEND": PACKAGE, "API_URL": "https://coins"}
        plug_in(monkeypatch, settings, PACKAGE, plugin, ORDER=ROOMS, PROVIDERS={"coins": account})
        return made

    yield make
    forget_plugins()


def paid_by(provider: Coins) -> tuple[Group, Payment]:
    order = Group.objects.create(name="a room")
    attempt = payments.start(order, method="coins")
    fold(provider.pay(attempt.out_trade_no))
    return order, Payment.objects.get()


def called(provider: Coins) -> list[str]:
    return [method for method, _ in provider.calls]


def test_a_channel_of_another_package_is_one_like_any_other(coins: Callable[..., Coins], client: Client) -> None:
    provider = coins(charges_again=True)
    assert check_channels(None) == []
    assert (configured.current()["coins"], configured.charging_again()) == (provider, {"coins"})
    answer = client.post("/webhooks/coins", b"", content_type="text/plain")
    assert (answer.status_code, answer.content) == (202, b"heard: 401")
    assert client.post("/webhooks/shells", b"", content_type="text/plain").status_code == 404
    order = Group.objects.create(name="a room")
    taps, shakes = (payments.start(order, method=f"coins.{method}") for method in ("tap", "shake"))
    assert taps == payments.start(order, method="coins") != shakes
    (first, second) = PaymentSerializer(Payment.objects.get()).data["attempts"]
    assert (first["method"], second["method"]) == ("tap", "shake")
    assert first["next_action"] == {"type": "beep", "url": "coins:beep"}
    with pytest.raises(MethodUnavailable):
        payments.start(order, method="coins.native")


def page_of(attempt: Attempt) -> str:
    """What a page of another project shows of it."""
    page = engines["django"].from_string("{% load payments %}<p>{% next_action attempt %}</p>")
    return str(page.render({"attempt": attempt, "till": 7}))


def test_a_kind_of_its_own_is_shown_in_its_way(coins: Callable[..., Coins], settings: Any, tmp_path: Path) -> None:
    (tmp_path / "beep.html").write_text("<b>{{ action.url }}</b> at {{ till }}")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]
    by_template = Renderer(page="beep.html", members=lambda action: {"tone": action.url.upper()})
    coins(actions=("beep",), renderers={"beep": by_template})
    assert check_channels(None) == []
    attempt = payments.start(Group.objects.create(name="a room"), method="coins")
    assert page_of(attempt) == "<p><b>coins:beep</b> at 7</p>"
    (shown,) = PaymentSerializer(attempt.payment).data["attempts"]
    assert shown["next_action"] == {"type": "beep", "url": "coins:beep", "tone": "COINS:BEEP"}
    coins(actions=("beep",), renderers={"beep": Renderer(page=lambda action: f"<{action.url}>")})
    assert page_of(attempt) == "<p>&lt;coins:beep&gt;</p>", "what a function returns is escaped"
    Attempt.objects.update(status="closed")
    attempt.refresh_from_db()
    assert page_of(attempt) == "<p></p>"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"actions": ("beep",)}, "the next action 'beep' has no renderer: add renderers={'beep': Renderer(page="),
        (
            {"actions": ("beep",), "renderers": {"beep": Renderer(page="no/such.html")}},
            "'no/such.html': no/such.html",
        ),
        ({"actions": ("b" * 17,), "renderers": {"b" * 17: Renderer()}}, "has more than 16 characters"),
    ],
)
def test_a_kind_without_page_stops_the_start(coins: Callable[..., Coins], more: dict[str, Any], why: str) -> None:
    coins(**more)
    (message,) = check_channels(None)
    assert (message.id, why in message.msg, message.is_serious()) == ("payments.E010", True, True)
    with pytest.raises(ImproperlyConfigured, match="coins: the next action"):
        must_be_sound()


@pytest.mark.parametrize(
    ("lacking", "amount_minor", "why"),
    [(Capability.REFUND, 500, "gives nothing back"), (Capability.PARTIAL_REFUND, 200, "or nothing")],
)
def test_what_it_cannot_give_back_is_refused_and_nothing_is_reserved(
    coins: Callable[..., Coins], admin_user: Any, lacking: Capability, amount_minor: int, why: str
) -> None:
    provider = coins(lacking)
    order, payment = paid_by(provider)
    with pytest.raises(RefundUnavailable, match=why):
        payments.refund(order, amount_minor=amount_minor)
    by = Operator(user_id=admin_user.pk, reason="rain")
    asked = {"refund_id": payment.pk, "amount_minor": amount_minor, "shown_reason": ""}
    with pytest.raises(NotDecidable, match=why):
        refund_by_hand(payment, **asked, by=by)
    payment.refresh_from_db()
    assert (payment.reserved_minor, Refund.objects.count(), "refund" in called(provider)) == (0, 0, False)
    if lacking is Capability.PARTIAL_REFUND:
        assert (payments.refund(order).amount_minor, "refund" in called(provider)) == (500, True)


def test_money_that_cannot_go_back_waits_for_a_person(
    coins: Callable[..., Coins], monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = coins(Capability.REFUND)
    monkeypatch.setattr(Rooms, "mark_paid", lambda self, order: False)
    paid_by(provider)
    steps.submit_refund(Refund.objects.get().pk)
    assert (Refund.objects.get().status, "refund" in called(provider)) == ("failed", False)
    kinds = set(Anomaly.objects.filter(resolved_at__isnull=True).values_list("kind", flat=True))
    assert kinds == {"paid_after_close", "refund_failed"}


def test_what_it_cannot_close_is_asked_about_until_it_ends(coins: Callable[..., Coins]) -> None:
    provider = coins(Capability.CLOSE)
    order = Group.objects.create(name="a room")
    attempt = payments.start(order, method="coins")
    assert payments.close_payment(order_id=order.pk) is closing.CloseResult.UNCERTAIN
    provider.pay(attempt.out_trade_no)
    assert payments.close_payment(order_id=order.pk) is closing.CloseResult.PAID
    assert called(provider) == ["create", "query", "query"]


def test_what_is_approved_there_and_cannot_be_let_go_is_left_until_it_lapses(
    coins: Callable[..., Coins],
) -> None:
    provider = coins(Capability.VOID)
    order = Group.objects.create(name="a room")
    attempt = payments.start(order, method="coins")
    provider.approve(attempt.out_trade_no)
    assert payments.close_payment(order_id=order.pk) is closing.CloseResult.UNCERTAIN
    provider.trades[attempt.out_trade_no].status = TradeStatus.CLOSED
    assert payments.close_payment(order_id=order.pk) is closing.CloseResult.CLOSED
    assert called(provider) == ["create", "query", "query", "close"]


def test_bills_that_it_has_not_are_not_asked_for(coins: Callable[..., Coins]) -> None:
    provider = coins(Capability.BILL)
    paid_by(provider)
    assert bills.compare_recent(now=datetime(2026, 11, 25, tzinfo=UTC)) == 0
    call_command("bills", "compare")
    with pytest.raises(CommandError, match="No bill of coins; above is why"):
        call_command("bills", "compare", "--channel", "coins", "--day", "2026-11-01")
    assert "bill" not in called(provider)


def test_operators_find_what_it_sent(coins: Callable[..., Coins], admin_client: Client) -> None:
    coins()
    about = {"channel": "coins", "out_trade_no": "7", "digest": "d", "body": b"{}"}
    for number in ("n-1", "n-2"):
        Notification.objects.create(
            **about, notification_id=number, verdict="ignored", processed_at=timezone.now()
        )
    anomalies.file_anomaly(AnomalyKind.CONTENT_CHANGED, channel="coins", reference="n-1", detail={})
    for page, count in (("notification/?q=n-1", 1), ("anomaly/?q=n-1", 1), ("anomaly/?channel=coins", 1)):
        shown = admin_client.get(f"/admin/payments/{page}").context["cl"]
        assert (page, shown.result_count) == (page, count)
    for page in ("anomaly", "observation", "billcomparison"):
        assert b"?channel=coins" in admin_client.get(f"/admin/payments/{page}/").content, page


def test_a_distribution_brings_its_channel_by_an_entry_point(
    coins: Callable[..., Coins], settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose name is the channel's; one of ours is not replaced."""
    provider = coins()
    installed = tmp_path / "coins-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: coins\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[payonce.providers]\ncoins = {PACKAGE}\nwechat = {PACKAGE}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._packages.cache_clear()
    try:
        settings.PAYMENTS = changed(PROVIDERS={"coins": {"API_URL": "https://coins"}})
        configured.forget()
        assert (check_channels(None), "coins" in registry.names()) == ([], True)
        assert configured.current()["coins"] is provider
        assert configured.plugin("wechat").label != "Coins"
    finally:
        registry._packages.cache_clear()


def refuses(settings: Any, limits: Any) -> Any:
    return b"\xffkey".decode()  # whose `repr` has all of what may be a secret


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (
            lambda settings, limits: None,
            "coins: Plugin.build of Coins must return a Provider; NoneType has no channel.",
        ),
        (lambda settings: None, "coins: Plugin.build of Coins failed: TypeError: "),
        (refuses, "coins: Plugin.build of Coins failed: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_a_package_that_builds_no_provider_is_named(
    monkeypatch: pytest.MonkeyPatch, settings: Any, build: Any, why: str
) -> None:
    account = {"BACKEND": PACKAGE}
    plugin = Plugin(label="Coins", build=build, required=())
    plug_in(monkeypatch, settings, PACKAGE, plugin, ORDER=ROOMS, PROVIDERS={"coins": account})
    (message,) = check_channels(None)
    assert (message.id, message.msg[: len(why)]) == ("payments.E003", why)


def test_the_timer_goes_on_with_the_others(coins: Callable[..., Coins]) -> None:
    """An expired attempt of a channel that closes nothing holds no other up."""
    provider = coins(Capability.CLOSE)
    late, other = (payments.start(Group.objects.create(name=name), method="coins") for name in "ab")
    late.payment.attempts.update(expires_at=late.created_at)
    assert sum(asked.count for asked in reconcile.all_open()) == 2
    assert called(provider)[2:] == ["query", "query"]
    late.refresh_from_db()
    assert (late.status, other.status) == ("pending", "pending")


def test_a_channel_that_cannot_be_found_is_explained(coins: Callable[..., Coins]) -> None:
    with suppress(registry.ConfigError):
        coins(version=2)
    assert any("is written for version 2" in message.msg for message in check_channels(None))
    for fields, why in (
        ({}, "'coins' is not a payment channel; known are alipay, paypal, stripe, wechat. Another one"),
        ({"BACKEND": "no.such.place"}, "coins: BACKEND = 'no.such.place' is no package with a PLUGIN: No module"),
        ({"BACKEND": ".coins"}, "coins: BACKEND = '.coins' is no package with a PLUGIN: the 'package' argument"),
        ({"BACKEND": "payments.money"}, "coins: BACKEND = 'payments.money' is no package with a PLUGIN"),
        (
            {"BACKEND": "payments.providers.wechat"},
            "PAYMENTS['PROVIDERS']['coins']['API_URL'] is not set, but other",
        ),
    ):
        with override_settings(PAYMENTS=changed(PROVIDERS={"coins": fields})):
            assert any(why in message.msg for message in check_channels(None))
