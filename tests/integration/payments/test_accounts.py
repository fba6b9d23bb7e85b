"""Several accounts of one channel: the adapter chooses, and the attempt keeps its account."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.core.checks import run_checks
from django.test import Client, RequestFactory, override_settings

import payments
from payments.attempts import calling
from payments.channels import configured
from payments.checks import check_channels
from payments.errors import ChannelOff, ChannelUnavailable
from payments.models import Anomaly, Attempt, Difference, Notification, Payment
from payments.operations.manual import why_manual
from payments.reconciliation import bills
from payments.webhooks import intake
from tests.integration.payments.channels.conftest import counted
from tests.integration.payments.conftest import letter, opened_for
from tests.payments_settings import Rooms, changed
from tests.running import until
from tests.sandbox import Sandbox

EU = "wechat-eu"
WECHAT = "payments.providers.wechat"


class Orders(Rooms):
    """The name of an order says which account it wants."""

    def account(self, order: Group, channel: str) -> str | None:
        return order.name or None


@pytest.fixture
def by_name(settings: Any) -> None:
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Orders")


@pytest.fixture(scope="module")
def sandboxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Sandbox]]:
    """The platform, as each of our two merchants there sees it."""
    found = {account: Sandbox(tmp_path_factory.mktemp(account)) for account in ("wechat", EU)}
    yield found
    for sandbox in found.values():
        sandbox.stop()


@pytest.fixture
def both(sandboxes: dict[str, Sandbox], live_server: Any, by_name: None, settings: Any) -> Iterator[None]:
    """Both accounts configured; notifications arrive over HTTP."""
    fields = {account: sandbox.channels()["wechat"] for account, sandbox in sandboxes.items()}
    fields[EU]["BACKEND"] = WECHAT
    settings.PAYMENTS = {**settings.PAYMENTS, "BASE_URL": live_server.url, "PROVIDERS": fields}
    configured.forget()
    yield
    configured.forget()


def start(account: str = "") -> Attempt:
    return payments.start(Group.objects.create(name=account), method="wechat")


def state(attempt: Attempt) -> tuple[str, int, int]:
    row = Payment.objects.get(pk=attempt.payment_id)
    return row.status, row.paid_minor, row.refunded_minor


@pytest.mark.usefixtures("both")
def test_each_account_is_paid_gives_back_and_sends_its_bill(
    sandboxes: dict[str, Sandbox], admin_client: Client
) -> None:
    assert check_channels(None) == []
    began, attempts = datetime.now(UTC), {account: start(account) for account in sandboxes}
    merchants = {account: provider.merchant for account, provider in configured.current().items()}
    for account, attempt in attempts.items():
        assert (attempt.channel, attempt.account, attempt.merchant) == ("wechat", account, merchants[account])
        sandboxes[account].pay(attempt.out_trade_no)
        until(lambda paid=attempt: state(paid) == ("succeeded", 500, 0))
        refund = payments.refund(Group.objects.get(name=account), amount_minor=200)
        until(lambda paid=attempt: state(paid) == ("partially_refunded", 500, 200))
        assert refund.attempt == attempt
        charge = sandboxes[account].charges()[attempt.out_trade_no]
        assert (charge["charged_minor"], charge["refunded_minor"]) == (500, 200)
    until(lambda: Notification.objects.count() == 4)  # of a payment and a refund each
    rows = Notification.objects.all()
    assert {(row.account, row.verdict) for row in rows} >= {("wechat", "applied"), (EU, "applied")}
    for account in attempts:
        zone = configured.current()[account].zone
        days = {began.astimezone(zone).date(), datetime.now(zone).date()}  # two, if one of them has just begun
        compared = [bills.compare(account=account, day=day) for day in sorted(days)]
        assert sum(one.lines for one in compared) == 2
        assert sum(one.theirs_minor for one in compared) == 300
        assert {one.merchant for one in compared} == {merchants[account]}
    assert not Difference.objects.filter(resolved_at=None).exists()
    listed = admin_client.get("/admin/payments/billcomparison/").text
    assert all(f">WeChat Pay ({account})<" in listed for account in attempts)
    # the same bytes at the address of the other: its keys do not verify them
    for row in rows:
        other = EU if row.account == "wechat" else "wechat"
        headers = {name: value for name, value in row.headers.items() if name != "Content-Type"}
        answer = admin_client.generic(
            "POST", f"/webhooks/{other}", bytes(row.body), content_type="application/json", headers=headers
        )
        assert answer.status_code == 401
    assert (Notification.objects.count(), Anomaly.objects.count()) == (len(rows), 0)


@pytest.fixture
def one_merchant_twice(channels: None, by_name: None, settings: Any) -> None:
    """Both accounts with one merchant's keys: each verifies the other's notifications."""
    fields = settings.PAYMENTS["PROVIDERS"]["wechat"]
    providers = {"wechat": fields, EU: {**fields, "BACKEND": WECHAT}}
    settings.PAYMENTS = {**settings.PAYMENTS, "PROVIDERS": providers, "ORDER": f"{__name__}.Orders"}
    configured.forget()


def opened(account: str | None = None, order: Group | None = None) -> Attempt:
    return opened_for((order or Group.objects.create(name=uuid4().hex)).pk, account)


@pytest.mark.usefixtures("one_merchant_twice")
def test_a_notification_at_the_address_of_another_account_never_credits() -> None:
    attempt, of_anomalies = opened(), {"channel": EU, "verdict": "anomaly"}
    before = counted(intake.RECEIVED, **of_anomalies)
    note = letter(attempt, notification_id="n-1")
    astray = replace(note, channel=EU)
    assert astray.send().status_code == 204
    assert state(attempt) == ("pending", 0, 0)
    anomaly = Anomaly.objects.get()
    assert (anomaly.kind, anomaly.detail["account"], anomaly.payment_id) == (
        *("merchant_mismatch", EU, attempt.payment_id),
    )
    assert (Notification.objects.get().account, counted(intake.RECEIVED, **of_anomalies)) == (EU, before + 1)
    assert note.send().status_code == 204
    assert state(attempt) == ("succeeded", 500, 0)
    assert astray.send().status_code == 204
    row = Notification.objects.get()
    assert (row.account, row.verdict, Anomaly.objects.count()) == ("wechat", "applied", 1)


@pytest.mark.usefixtures("one_merchant_twice")
def test_an_account_that_nobody_chooses_is_named_like_its_channel_or_the_only_one(settings: Any) -> None:
    assert [opened(account).account for account in (None, "wechat", EU)] == ["wechat", "wechat", EU]
    with pytest.raises(ChannelUnavailable):
        opened("alipay")
    providers = settings.PAYMENTS["PROVIDERS"]
    settings.PAYMENTS = {**settings.PAYMENTS, "PROVIDERS": {EU: providers[EU]}}
    configured.forget()
    assert opened().account == EU


@pytest.mark.usefixtures("one_merchant_twice")
def test_an_order_stays_at_the_account_of_its_live_attempt() -> None:
    order = Group.objects.create(name=EU)
    with pytest.raises(ChannelUnavailable, match=f"{EU} is of the payment channel wechat, not of {EU}"):
        payments.start(order, method=EU)
    made = [opened(account, order) for account in (EU, "wechat")]
    assert (made[0], made[1].account) == (made[1], EU)


@pytest.mark.usefixtures("one_merchant_twice")
def test_a_check_names_an_account_that_open_attempts_miss(settings: Any) -> None:
    attempt = opened(EU)
    providers = settings.PAYMENTS["PROVIDERS"]

    def warned() -> list[str]:
        found = run_checks(tags=["database"], databases=["default"])
        return [message.msg for message in found if message.id == "payments.W003"]

    assert warned() == []
    settings.PAYMENTS = {**settings.PAYMENTS, "PROVIDERS": {"wechat": providers["wechat"]}}
    configured.forget()
    assert warned() == [
        f"1 open attempts and refunds are at the account {EU!r}, which PAYMENTS['PROVIDERS'] lacks, or has for "
        "another merchant."
    ]
    with pytest.raises(ChannelOff, match=f"the account {EU} is not configured here"):
        calling.provider_of(attempt)
    assert why_manual(attempt) == "the account is not configured here"
    mistaken = {EU: {**providers[EU], "API_URL": "x"}, "wechat": providers["wechat"]}
    settings.PAYMENTS = {**settings.PAYMENTS, "PROVIDERS": mistaken}
    configured.forget()
    assert warned() == []  # `check_channels` names the mistake
    settings.PAYMENTS = {**settings.PAYMENTS, "PROVIDERS": {"wechat": providers["wechat"]}}
    configured.forget()
    Attempt.objects.update(status="failed")
    assert warned() == []


@pytest.mark.usefixtures("one_merchant_twice")
def test_a_mistake_in_an_account_is_named(settings: Any) -> None:
    fields = settings.PAYMENTS["PROVIDERS"][EU]
    (same,) = check_channels(None)
    assert (same.id, same.msg) == (
        *("payments.E008", f"wechat and {EU} are one merchant account, {fields['MCH_ID']}."),
    )
    mistakes = [
        ("we/chat", fields, "PAYMENTS['PROVIDERS']['we/chat']: a name has 1 to 64 of"),
        (EU, {**fields, "API_URL": "x"}, f"{EU}: WECHAT_API_URL must be an absolute"),
        (
            EU,
            {**fields, "WECHAT_APP_ID": "x"},
            f"PAYMENTS['PROVIDERS']['{EU}']['WECHAT_APP_ID'] is unknown; did you",
        ),
        (EU, {**fields, "API_URL": "https://h/?a=b"}, f"{EU}: WECHAT_API_URL must not hold ? or #."),
    ]
    for name, given, said in mistakes:
        with override_settings(PAYMENTS={**settings.PAYMENTS, "PROVIDERS": {name: given}}):
            assert [message.msg[: len(said)] for message in check_channels(None)] == [said]


@pytest.mark.usefixtures("one_merchant_twice")
def test_the_admin_shows_and_filters_by_account(admin_client: Client) -> None:
    ours, theirs = opened(), opened(EU)
    letter(ours).send()
    replace(letter(theirs), channel=EU).send()
    for name in ("attempt", "notification"):
        pages = {
            account: admin_client.get(f"/admin/payments/{name}/", {"account": account})
            for account in ("wechat", EU)
        }
        assert [len(page.context["cl"].result_list) for page in pages.values()] == [1, 1]
        assert [row.account for page in pages.values() for row in page.context["cl"].result_list] == ["wechat", EU]
    page = admin_client.get(f"/admin/payments/payment/{theirs.payment_id}/change/").content.decode()
    assert f"WeChat Pay ({EU})" in page


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("method", ["wechat.jsapi", "wechat.h5"])
def test_a_shopper_without_what_the_method_needs_may_start_again_with_it(method: str) -> None:
    order = Group.objects.create(name="")
    with pytest.raises(ValueError, match="needs the payer's"):
        payments.start(order, method=method)
    found = payments.start(order, method=method, request=RequestFactory().get("/"), openid="oUpF8uMuAJO")
    assert (found.status, payments.status(order)) == ("pending", "pending")
