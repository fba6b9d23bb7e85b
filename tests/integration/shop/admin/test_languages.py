"""The back office for a reader of Chinese: nothing is left in English but data and names."""

import re
from datetime import timedelta
from typing import Any
from urllib.parse import urljoin

import pytest
from django.apps import apps
from django.contrib.admin import site
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.utils import timezone
from rest_framework.authtoken.models import Token

from idempotency.admin.labels import english
from payments.money import EXPONENTS
from shop import sales as flashsale
from shop.catalog import products as catalog
from shop.models import FlashSalePurchase, Product
from shop.orders import placing as orders
from shop.sales import coupons
from tests.languages import latin_in

pytestmark = pytest.mark.django_db(transaction=True)

DATA = ["clerk", "ann", "mug", "Mug", "spring", "Spring", *EXPONENTS]
DATA += ["Control", "Mac", "Command", "LDAP", "Procrastinate", "md5"]
# models without a page, which permissions name
DATA += [english(model._meta, "verbose_name") for model in apps.get_models() if model not in site._registry]

ELSEWHERE = re.compile("/logout/|/admin/(?:payments|idempotency)/.")  # those apps have tests of their own
NUMBER = re.compile(
    r"[0-9a-f]{32}|[0-9a-f]{8}…[0-9a-f]{6}|\b[0-9A-F]{6}\b|\w+\*+"
)  # …, as shoppers write it, hashes


@pytest.fixture
def operator() -> Client:
    client = Client(headers={"Accept-Language": "zh-CN"})
    client.force_login(User.objects.create_superuser("clerk", password="clerk"))
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
def test_every_page_that_the_start_page_leads_to(operator: Client) -> None:
    """Those of Django and of the shop; of pages that differ in a number alone, the first."""
    found, seen, waiting = [], set(), ["/admin/"]
    while waiting:
        path = waiting.pop()
        kind = re.sub(r"/(?:[0-9a-f-]{32,36}|\d+)(?=/)", "/1", path)
        if kind not in seen and path.startswith("/admin/") and not ELSEWHERE.search(path):
            seen.add(kind)
            answer = operator.get(path)
            found += left(answer)
            waiting += [urljoin(path, link) for link in re.findall('href="([^"?#]+)', answer.text)]
    assert seen >= {"/admin/auth/user/1/password/", "/admin/shop/product/add/", "/admin/shop/order/1/change/"}
    assert found == []


def test_what_an_operator_does_is_answered_in_chinese(operator: Client, mug: Product) -> None:
    wrong = {"sku": "mug", "price_minor": "19.90", "currency": "ABC", "stock_difference": "-"}
    refused = operator.post(f"/admin/shop/product/{mug.pk}/change/", wrong)
    assert left(refused) == []
    assert "此页面已打开超过一天" in refused.text
    ann = User.objects.get(username="ann")
    Token.objects.create(user=ann)
    given = {"action": "end_tokens", "_selected_action": [ann.pk]}
    assert "已收回 1 个 API 令牌。" in operator.post("/admin/auth/user/", given, follow=True).text
