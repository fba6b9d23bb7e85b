"""Coupons on the pages: drawn once, used for one order until it closes."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client

from payments.models import Payment
from shop.errors import CouponNotUsable
from shop.models import Campaign, Coupon, Order, Product
from shop.sales import coupons
from tests.integration.shop.conftest import placed
from tests.integration.shop.web.test_pages import form_of, pay

pytestmark = pytest.mark.usefixtures("mug")


@pytest.fixture
def coupon(shopper: Client, campaign: Campaign) -> Coupon:
    """The member's, drawn by a double click on the page."""
    fields = form_of(shopper.get("/coupons"), "/coupons/welcome/draw")
    assert {shopper.post("/coupons/welcome/draw", fields)["Location"] for _ in range(2)} == {"/coupons"}
    return Coupon.objects.get(drawn_by__isnull=False)


def use(shopper: Client, order: Order, coupon: Coupon) -> Any:
    action = f"/orders/{order.id.hex}/coupon"
    return shopper.post(action, form_of(shopper.get(f"/orders/{order.id.hex}"), action) | {"coupon": coupon.code})


def total(order: Order) -> int:
    order.refresh_from_db()
    return order.total_minor


def test_a_coupon_is_drawn_used_and_paid_less(shopper: Client, demo: User, coupon: Coupon, channels: Any) -> None:
    page = shopper.get("/coupons").text
    chinese = shopper.get("/coupons", headers={"Accept-Language": "zh-CN"}).text
    assert "8.5 折 · 新人券" in chinese
    assert ("15% off · Welcome" in page, coupon.code in page, "Ready to use" in page) == (True, True, True)
    order = placed(demo, mug=3)
    path = f"/orders/{order.id.hex}"
    assert "8.5 折 · 新人券</option>" in shopper.get(path, headers={"Accept-Language": "zh-CN"}).text
    fields = form_of(shopper.get(path), f"{path}/coupon") | {"coupon": coupon.code}
    for _ in range(2):
        assert shopper.post(f"{path}/coupon", fields)["Location"] == path
    shown = shopper.get(path).text
    assert all(words in shown for words in ("−¥8.95", "Pay ¥50.75", "Your coupon has been applied."))
    assert f'href="{path}">Used for an order' in shopper.get("/coupons").text
    pay(shopper, order, "wechat")
    assert Payment.objects.get().amount_minor == 5075


def test_a_closed_order_gives_its_coupon_back(shopper: Client, demo: User, coupon: Coupon) -> None:
    first, second = placed(demo, mug=1), placed(demo, mug=1)
    use(shopper, first, coupon)
    assert "Get a coupon" in shopper.get(f"/orders/{second.id.hex}").text, "it is used"
    cancel = f"/orders/{first.id.hex}/cancel"
    shopper.post(cancel, form_of(shopper.get(cancel), cancel))
    use(shopper, second, coupon)
    assert (total(second), Coupon.objects.get(pk=coupon.pk).order) == (1692, second)


def test_refusals_leave_the_total_alone(shopper: Client, demo: User, coupon: Coupon, channels: Any) -> None:
    order = placed(demo, mug=1)
    path = f"/orders/{order.id.hex}"
    form = form_of(shopper.get(path), f"{path}/coupon")
    for code in ("nothing", "no\0thing"):
        unknown = shopper.post(f"{path}/coupon", form | {"coupon": code})
        assert unknown["Location"] == path
        assert "be used for this order" in shopper.get(path).text
        form = form_of(shopper.get(path), f"{path}/coupon")
    late = form_of(shopper.get(path), f"{path}/coupon")
    pay(shopper, order, "wechat")
    assert shopper.post(f"{path}/coupon", late | {"coupon": coupon.code})["Location"] == path
    assert "the total can&#x27;t change any more" in shopper.get(path).text
    assert (total(order), Coupon.objects.get(pk=coupon.pk).order) == (1990, None)


def test_an_order_too_small_to_be_lowered_leaves_the_coupon_free(
    demo: User, shopper: Client, coupon: Coupon
) -> None:
    Product.objects.update(price_minor=1)
    order = placed(demo, mug=1)
    with pytest.raises(CouponNotUsable), transaction.atomic():
        coupons.use(code=coupon.code, order_id=order.id, user_id=demo.pk)
    assert (total(order), Coupon.objects.get(pk=coupon.pk).order) == (1, None)
