"""The back office for a reader of Chinese: nothing is left in English but data and names."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.authtoken.models import Token

from payments.money import EXPONENTS
from shop import sales as flashsale
from shop.catalog import products as catalog
from shop.models import FlashSalePurchase, Product
from shop.orders import placing as orders
from shop.sales import coupons
from tests.languages import latin_in

pytestmark = pytest.mark.django_db(transaction=True)

DATA = ["clerk", "ann", "mug", "Mug", "spring", "Spring", *EXPONENTS]


NUMBER = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}…[0-9a-f]{6}|\b[0-9A-F]{6}\b")  # the last as shoppers write it


@pytest.fixture
def operator() -> Client:
    client = Client(headers={"Accept-Language": "zh-CN"})
    client.force_login(User.objects.create_superuser("clerk"))
    return client


@pytest.fixture
def mug() -> Product:
    """A product that was ordered, liked and sold in a sale, and a coupon campaign."""
    ann, now = User.objects.create_user("ann"), timezone.now()
    mug = Product.objects.create(sku="mug", name="Mug", price_minor=1990, stock=9)
    with transaction.atomic():
        order = orders.create_order(user_id=ann.pk, quantities={"mug": 1})
        coupons.open_campaign(slug="spring", name="Spring", count=1)
    catalog.like(sku="mug", user_id=ann.pk)
    Product.objects.filter(pk=mug.pk).update(flash_only=True)
    sale = flashsale.announce(product_id=mug.pk, units=2, starts_at=now, ends_at=now + timedelta(hours=1))
    FlashSalePurchase.objects.create(sale=sale, buyer=ann, order=order, place=1)
    return mug


def left(answer: Any) -> list[str]:
    """List the texts of a page in Latin letters, but for data and numbers."""
    assert answer.status_code == 200
    found = latin_in(NUMBER.sub(" ", answer.text), DATA)
    return [f"{answer.request['PATH_INFO']}: {text}" for text in found]


@pytest.mark.usefixtures("mug")
def test_every_list_and_page(operator: Client) -> None:
    found = []
    for model in apps.get_app_config("shop").get_models():
        if operator.get(f"/admin/shop/{model._meta.model_name}/").status_code != 200:
            continue
        name = f"admin:shop_{model._meta.model_name}"
        found += left(operator.get(reverse(f"{name}_changelist")))
        for row in model._default_manager.all()[:1]:
            found += left(operator.get(reverse(f"{name}_change", args=[row.pk])))
    found += [text for name in ("product", "flashsale") for text in left(operator.get(f"/admin/shop/{name}/add/"))]
    assert found == []


def test_a_product_is_edited(operator: Client, mug: Product) -> None:
    page = f"/admin/shop/product/{mug.pk}/change/"
    refused = operator.post(
        page, {"sku": "mug", "price_minor": "19.90", "currency": "ABC", "stock_difference": "-"}
    )
    assert left(refused) == []
    assert "此页面已打开超过一天" in refused.text


def test_tokens_are_taken_away(operator: Client, mug: Product) -> None:
    ann = User.objects.get(username="ann")
    Token.objects.create(user=ann)
    given = {"action": "end_tokens", "_selected_action": [ann.pk]}
    assert "已收回 1 个 API 令牌。" in operator.post("/admin/auth/user/", given, follow=True).text
