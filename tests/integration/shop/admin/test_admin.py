"""What the operator can see of the shop, and what they can and cannot change."""

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.test import Client
from rest_framework.authtoken.models import Token

from payments.models import AuditEntry
from shop import sales as flashsale
from shop import stock
from shop.catalog import products as catalog
from shop.models import Campaign, FlashSale, FlashSalePurchase, Like, Order, Product
from shop.orders import checkout
from shop.sales import coupons
from tests.integration.payments.conftest import refund_asked
from tests.integration.shop.conftest import Caller, placed
from tests.integration.shop.settling import number_of, on_payment, settle
from tests.integration.shop.web.test_refund_pages import given_back
from tests.threads import at_once


@pytest.fixture
def operator(transactional_db: None, admin_client: Client) -> Client:
    return admin_client


@pytest.fixture
def order(demo: User, mug: Product) -> Order:
    return placed(demo, mug=2)


def page(operator: Client, product: Product) -> dict[str, Any]:
    """What a browser would send of the product's page, were nothing changed."""
    form = operator.get(f"/admin/shop/product/{product.pk}/change/").context["adminform"].form
    return {name: form[name].value() for name in form.fields if form[name].value() not in (None, False)}


def send(operator: Client, product: Product, fields: dict[str, Any]) -> str:
    """What the operator reads next."""
    address = f"/admin/shop/product/{product.pk}/change/"
    return str(operator.post(address, fields, follow=True).text)


def edit(operator: Client, product: Product, **changes: Any) -> str:
    return send(operator, product, page(operator, product) | changes)


BAG = {"sku": "bag", "name": "Bag", "picture": "parcel", "price_minor": "1.00", "currency": "CNY", "stock": "7"}


def test_a_product_is_added_with_its_first_stock(operator: Client) -> None:
    operator.post("/admin/shop/product/add/", BAG | {"sku": "one", "description": ""})
    operator.post("/admin/shop/product/add/", BAG | {"sku": "more", "strategy": "segmented", "segments": "2"})
    for sku, units, segments in (("one", 7, []), ("more", 0, [4, 3])):
        bag = Product.objects.get(sku=sku)
        assert (bag.stock, list(bag.segments.values_list("units", flat=True))) == (units, segments)


def test_a_price_is_typed_and_shown_as_money(operator: Client, mug: Product) -> None:
    assert page(operator, mug)["price_minor"] == "19.90"
    assert "Write the amount in digits, as in 19.90." in edit(operator, mug, price_minor="19.901")
    assert "Write the amount in digits, as in 1990." in edit(operator, mug, price_minor="19.90", currency="JPY")
    edit(operator, mug, price_minor="1999", currency="JPY")
    mug.refresh_from_db()
    assert (mug.price_minor, mug.currency) == (1999, "JPY")
    assert page(operator, mug)["price_minor"] == "1999"
    assert "1,999 JPY" in operator.get("/admin/shop/product/").text


def test_taking_away_more_than_there_is_or_than_a_column_holds_is_refused(operator: Client, mug: Product) -> None:
    assert "less than or equal to 1000000000" in edit(operator, mug, stock_difference="9" * 30)
    fields = page(operator, mug) | {"stock_difference": "-101", "name": "Cup"}
    said = send(operator, mug, fields)

    assert "fewer units than you take away" in said
    assert "changed successfully" not in said
    assert (said.count('value="-101"'), said.count('value="Cup"')) == (1, 1)  # what was typed is still there
    mug.refresh_from_db()
    assert (mug.stock, mug.name, LogEntry.objects.count()) == (100, "Mug", 0)

    assert "changed successfully" in send(operator, mug, fields | {"stock_difference": "-100"})
    mug.refresh_from_db()
    assert (mug.stock, mug.name) == (0, "Cup")


def test_two_add_the_same_at_once_and_one_reads_that_it_is_there(transactional_db: None) -> None:
    boss = User.objects.create_superuser("boss")
    sale = Product.objects.create(sku="sale", name="Sale", price_minor=100, stock=5, flash_only=True)
    times = {f"{name}_at_1": "10:00:00" for name in ("starts", "ends")}
    times |= {"starts_at_0": "2026-12-01", "ends_at_0": "2026-12-02"}

    def add(what: str, form: dict[str, Any]) -> int:
        client = Client()
        client.force_login(boss)
        return client.post(f"/admin/shop/{what}/add/", form).status_code

    for what, form in (("product", BAG), ("flashsale", {"product": sale.pk, "units": "3", **times})):
        assert sorted(at_once(*[partial(add, what, form)] * 3)) == [200, 200, 302]
    assert (Product.objects.filter(sku="bag").count(), FlashSale.objects.count()) == (1, 1)


def test_an_editor_puts_nothing_back_that_another_saved_meanwhile(operator: Client, mug: Product) -> None:
    first, second, third = (page(operator, mug) for _ in range(3))
    send(operator, mug, second | {"price_minor": "24.90", "flash_only": "on", "strategy": "version"})
    send(operator, mug, first | {"description": "White."})
    mug.refresh_from_db()
    assert (mug.price_minor, mug.flash_only, mug.stock_strategy) == (2490, True, "version")
    assert mug.description == "White."

    for change in ({"price_minor": "26", "stock_difference": "5"}, {"strategy": "row_lock"}):
        assert "Somebody else edited this product" in send(operator, mug, third | change)
    mug.refresh_from_db()
    assert (mug.price_minor, mug.stock, mug.stock_strategy) == (2490, 100, "version")


def test_a_page_that_is_sent_twice_counts_once(operator: Client, mug: Product) -> None:
    fields = page(operator, mug) | {"stock_difference": "10", "stock": "100", "name": "Cup"}
    Product.objects.update(stock=60)  # sold while the page was open
    assert "changed successfully" in send(operator, mug, fields)
    again = send(operator, mug, fields)

    assert "nothing was done again" in again
    assert "changed successfully" not in again
    assert stock.units_of(product_id=mug.pk) == 70
    assert LogEntry.objects.get().get_change_message() == "Changed Name and Stock difference +10."


def test_a_page_that_does_not_say_what_was_seen_is_refused(operator: Client, mug: Product) -> None:
    other = Product.objects.create(sku="bag", name="Bag", price_minor=1)
    for seen in ("", "forged", page(operator, other)["seen"]):
        assert "load it again" in edit(operator, mug, name="Cup", seen=seen)
    mug.refresh_from_db()
    assert mug.name == "Mug"


def test_who_may_only_look_is_given_no_page_to_send(client: Client, operator: Client, mug: Product) -> None:
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_product"))
    client.force_login(viewer)
    shown = client.get(f"/admin/shop/product/{mug.pk}/change/")
    assert (shown.status_code, b"Mug" in shown.content, b'name="seen"' in shown.content) == (200, True, False)
    assert b"19.90 CNY" in shown.content
    assert client.post(f"/admin/shop/product/{mug.pk}/change/", {"name": "Cup"}).status_code == 403
    deleted = operator.post(f"/admin/shop/product/{mug.pk}/delete/", {"post": "yes"})
    assert deleted.status_code == 403, "not even a superuser deletes one"


def found(operator: Client, model: str, **query: str) -> list[Any]:
    return list(operator.get(f"/admin/shop/{model}/", query).context["cl"].result_list)


def test_searches_take_whole_words_and_filters_beside_them(
    operator: Client, demo: User, mug: Product, order: Order, campaign: Campaign
) -> None:
    second = placed(demo, mug=1)
    with transaction.atomic():
        on_payment(order_id=second.id, event="paid")
        coupon = coupons.draw(slug="welcome", user_id=demo.pk)
    for number in (order.id.hex, str(order.id)):
        assert found(operator, "order", q=number) == [order]
    for term in ("demo", "mug"):
        assert found(operator, "order", q=term) == [second, order]
        assert found(operator, "order", q=term, status="paid") == [second]
        assert found(operator, "order", q=term, opened="1h", status="closed") == []
        assert found(operator, "order", q=term[:-1]) == []

    catalog.like(sku="mug", user_id=demo.pk)
    Product.objects.update(name_zh="搪瓷杯")
    for model, terms, row in (
        ("product", ("mug", "Mug", "搪瓷杯"), mug),
        ("like", ("demo", "mug"), Like.objects.get()),
        ("coupon", ("demo", coupon.code, coupon.code.lower()), coupon),
        ("campaign", ("welcome", "Welcome", "新人券"), campaign),
    ):
        for term in terms:
            assert found(operator, model, q=f" {term} ") == [row]
        assert found(operator, model, q="nobody") == []
    assert "sortable" not in operator.get("/admin/shop/like/").text


def test_an_order_is_shown_as_in_the_shop_and_never_changed(
    operator: Client, demo: User, order: Order, channels: Any
) -> None:
    listed, path = "/admin/shop/order/", f"/admin/shop/order/{order.pk}/change/"
    payment = checkout.start_payment(order_id=order.id, user_id=demo.pk, channel="wechat")
    shown = operator.get(path).text
    assert all(part in shown for part in ("39.80 CNY", "19.90 CNY", payment.id.hex))
    assert operator.post(path, {"status": "paid"}).status_code == 403
    assert operator.post(f"{listed}{order.pk}/delete/", {"post": "yes"}).status_code == 403
    assert operator.get(f"{listed}add/").status_code == 403
    assert f'<span title="{order.id.hex}">{order.short_number}</span>' in operator.get(listed).text
    settle(channels["wechat"].pay(number_of(order.id.hex, "wechat")))
    assert ">Paid</span>" in operator.get(listed).text
    given_back(refund_asked(payment.pk, 550), channels)
    for address in (listed, path):
        assert ">Partly refunded</span>" in operator.get(address).text


def test_the_admin_speaks_the_language_that_was_chosen(operator: Client) -> None:
    address, chinese = "/admin/idempotency/ledgerentry/", {"Accept-Language": "zh-CN"}
    answer = operator.get(address, headers=chinese)
    assert (answer["Content-Language"], "<h1>幂等记录</h1>" in answer.text) == ("zh-hans", True)
    assert 'value="en" lang="en">English</button>' in answer.text, "the switch is on every page"
    operator.post("/i18n/setlang/", {"language": "en"})
    assert "<h1>Ledger entries</h1>" in operator.get(address, headers=chinese).text


def test_times_are_in_one_style(
    operator: Client, demo: User, mug: Product, order: Order, campaign: Campaign
) -> None:
    catalog.like(sku="mug", user_id=demo.pk)
    Product.objects.filter(pk=mug.pk).update(flash_only=True)
    at = datetime(2026, 11, 22, 21, 47, tzinfo=UTC)
    sale = flashsale.announce(product_id=mug.pk, units=2, starts_at=at, ends_at=at + timedelta(hours=1))
    purchase = FlashSalePurchase.objects.create(sale=sale, buyer=demo, order=order, place=1)
    with transaction.atomic():
        coupon = coupons.draw(slug="welcome", user_id=demo.pk)
    for row in (sale, purchase, coupon, campaign, Like.objects.get(), order):
        listed = f"/admin/shop/{row._meta.model_name}/"
        for address in (listed, f"{listed}{row.pk}/change/"):
            said = operator.get(address).text
            assert "(UTC)" in said
            assert re.search(r"[ap]\.m\.|midnight|noon|¥", said) is None


def test_nul_in_a_filter_is_a_bad_request(operator: Client) -> None:
    """Of every list and every filter, Django's and third parties' too."""
    for model, shown in admin.site._registry.items():
        listed, names = f"/admin/{model._meta.app_label}/{model._meta.model_name}/", ["q", "o", "p"]
        for given in shown.list_filter:
            names.append(given if isinstance(given, str) else getattr(given, "parameter_name", "of"))
        answers = [operator.get(f"{listed}?{name}={value}") for name in names for value in ("%00", "a%00b")]
        assert {answer.status_code for answer in answers} == {400}
    assert operator.get("/admin/shop/order/?q=%2500").status_code == 200  # which is no NUL


def test_how_units_are_taken_is_changed_and_they_stay_as_many(
    operator: Client, mug: Product, order: Order
) -> None:
    address = f"/admin/shop/product/{mug.pk}/change/"
    edit(operator, mug, strategy="segmented", segments="4", stock_difference="2")

    assert stock.units_of(product_id=mug.pk) == 100
    assert list(mug.segments.values_list("units", flat=True)) == [25] * 4
    assert '<div class="readonly">100</div>' in operator.get(address).text
    assert '<td class="field-units">100</td>' in operator.get("/admin/shop/product/?o=5").text

    with transaction.atomic():
        on_payment(order_id=order.id, event="paid")
    edit(operator, mug, strategy="", segments="")  # a form without them leaves them alone
    assert mug.segments.count() == 4
    edit(operator, mug, strategy="version", segments="4")
    mug.refresh_from_db()
    assert (mug.stock, mug.stock_strategy, mug.segments.count()) == (100, "version", 0)
    assert "less than or equal to 64" in edit(operator, mug, strategy="segmented", segments="65")


@pytest.mark.parametrize("way", ["page", "list"])
def test_who_did_something_is_deleted_and_their_acts_on_money_stay(
    operator: Client, demo: User, mug: Product, channels: Any, order: Order, way: str
) -> None:
    payment = checkout.start_payment(order_id=order.id, user_id=demo.pk, channel="wechat")
    clerk = User.objects.create_superuser("clerk")
    theirs = Client()
    theirs.force_login(clerk)
    assert "changed successfully" in edit(theirs, mug, name="Cup")
    answer = theirs.post(f"/admin/payments/payment/{payment.id}/ask/", {"reason": "shopper called"})
    assert answer.status_code == 302
    shown = operator.get(f"/admin/payments/payment/{payment.id}/change/").text
    assert "operator, payment" in shown
    chosen = {"action": "delete_selected", "_selected_action": [clerk.pk], "post": "yes"}
    if way == "page":
        operator.post(f"/admin/auth/user/{clerk.pk}/delete/", {"post": "yes"})
    else:
        theirs.post("/admin/auth/user/", chosen)
    assert not User.objects.filter(username="clerk").exists()
    assert LogEntry.objects.filter(user_id=clerk.pk).count() == 0
    kept = AuditEntry.objects.values_list("operator", "operator_id")
    assert list(kept) == [("clerk", str(clerk.pk))] * 2
    later = operator.get(f"/admin/payments/payment/{payment.id}/change/").text
    assert later.count("Reason: shopper called.") == shown.count("Reason: shopper called.") == 2


class TestAccountsOfOthers:
    """What a clerk with the permissions of `auth`, who is no superuser, can do to accounts."""

    SECRET = "a longer secret 7"

    @pytest.fixture
    def clerk(self, transactional_db: None) -> User:
        clerk = User.objects.create_user("clerk", is_staff=True)
        clerk.user_permissions.set(Permission.objects.filter(content_type__app_label="auth"))
        return clerk

    @pytest.fixture
    def theirs(self, clerk: User) -> Client:
        client = Client()
        client.force_login(clerk)
        return client

    def change(self, client: Client, user: User, **fields: Any) -> int:
        """Send the account's page, with all that a superuser's page would have."""
        rights = {
            **{"is_active": "on", "is_staff": "on", "is_superuser": "on"},
            "user_permissions": [str(pk) for pk in Permission.objects.values_list("pk", flat=True)],
            "groups": [str(Group.objects.get_or_create(name="finance")[0].pk)],
        }
        body = {"username": user.username, "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
        return client.post(f"/admin/auth/user/{user.pk}/change/", body | rights | fields).status_code

    def rights(self, user: User) -> tuple[Any, ...]:
        user = User.objects.get(pk=user.pk)
        counts = (user.user_permissions.count(), user.groups.count())
        return (user.is_active, user.is_staff, user.is_superuser, *counts)

    def test_rights_are_not_given_and_a_new_account_has_none(
        self, theirs: Client, clerk: User, demo: User
    ) -> None:
        for user in (clerk, demo):
            before = self.rights(user)
            assert "finance" not in theirs.get(f"/admin/auth/user/{user.pk}/change/").text
            assert self.change(theirs, user, email="new@example.com") == 302
            assert (User.objects.get(pk=user.pk).email, self.rights(user)) == ("new@example.com", before)
        body = {"username": "new", "password1": self.SECRET, "password2": self.SECRET, "usable_password": "true"}
        rights = {"is_superuser": "on", "is_staff": "on", "user_permissions": ["1"]}
        assert theirs.post("/admin/auth/user/add/", body | rights).status_code == 302
        assert self.rights(User.objects.get(username="new")) == (True, False, False, 0, 0)

    @pytest.mark.parametrize(("may", "active"), [("all", False), ("refund", True)])
    def test_who_may_do_more_is_out_of_reach(self, theirs: Client, demo: User, may: str, active: bool) -> None:
        """A superuser, and who may give money back, also while their account is not active."""
        above = User.objects.create_user("above", password="before", is_superuser=may == "all", is_active=active)
        if may == "refund":
            group = Group.objects.create(name="refunds")
            group.permissions.set(Permission.objects.filter(codename="refund_payment"))
            above.groups.add(group)
        address = f"/admin/auth/user/{above.pk}"
        before = vars(User.objects.get(pk=above.pk)) | {"_state": 0}
        shown = theirs.get(f"{address}/change/").text
        assert ('name="_save"' in shown, above.password in shown) == (False, False)
        passwords = {"password1": self.SECRET, "password2": self.SECRET, "usable_password": "true"}
        chosen = {"action": "delete_selected", "_selected_action": [demo.pk, above.pk], "post": "yes"}
        assert self.change(theirs, above) == 403
        assert theirs.get(f"{address}/password/").status_code == 403
        assert theirs.post(f"{address}/password/", passwords).status_code == 403
        assert theirs.post(f"{address}/delete/", {"post": "yes"}).status_code == 403
        assert theirs.post("/admin/auth/user/", chosen).status_code == 403
        assert vars(User.objects.get(pk=above.pk)) | {"_state": 0} == before
        assert User.objects.filter(pk=demo.pk).exists()

    def test_api_tokens_are_taken_away_of_who_is_in_reach(
        self, theirs: Client, demo: User, caller: Caller
    ) -> None:
        above = User.objects.create_superuser("above")
        Token.objects.create(user=above)
        shown = theirs.get("/admin/auth/user/").text
        assert shown.count('field-has_token"><img src="/static/admin/img/icon-yes') == 2
        chosen = {"action": "end_tokens", "_selected_action": [demo.pk, above.pk]}
        assert theirs.post("/admin/auth/user/", chosen).status_code == 403
        assert Token.objects.count() == 2
        answer = theirs.post("/admin/auth/user/", chosen | {"_selected_action": [demo.pk]}, follow=True)
        assert "1 API token was taken away." in answer.text
        assert (Token.objects.get().user, caller.get("orders").status_code) == (above, 401)
        assert LogEntry.objects.get().get_change_message() == "Took away the API token."

    def test_a_group_keeps_its_permissions(self, theirs: Client, clerk: User) -> None:
        group = Group.objects.create(name="clerks")
        body = {"name": "staff", "permissions": list(Permission.objects.values_list("pk", flat=True))}
        assert theirs.post(f"/admin/auth/group/{group.pk}/change/", body).status_code == 302
        assert theirs.post("/admin/auth/group/add/", body | {"name": "new"}).status_code == 302
        assert Group.objects.filter(permissions__isnull=False).count() == 0

    def test_others_are_in_reach(self, theirs: Client, demo: User) -> None:
        passwords = {"password1": self.SECRET, "password2": self.SECRET, "usable_password": "true"}
        assert theirs.post(f"/admin/auth/user/{demo.pk}/password/", passwords).status_code == 302
        assert User.objects.get(pk=demo.pk).check_password(self.SECRET)
        theirs.post(f"/admin/auth/user/{demo.pk}/delete/", {"post": "yes"})
        assert not User.objects.filter(pk=demo.pk).exists()

    def test_a_superuser_gives_rights(self, operator: Client, demo: User) -> None:
        assert self.change(operator, demo) == 302
        assert self.rights(demo) == (True, True, True, Permission.objects.count(), 1)
