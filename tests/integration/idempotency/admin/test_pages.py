"""Lists of all three apps take their own filters, and no other lookup from an address."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from shop import sales
from shop.models import Product

pytestmark = pytest.mark.django_db(transaction=True)

LOOKUPS = ("contains", "startswith", "regex", "year", "range", "in", "gt")


def pages() -> Iterator[tuple[ModelAdmin, str]]:  # type: ignore[type-arg]
    for model, page in admin.site._registry.items():
        yield page, reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def test_a_lookup_that_no_filter_offers_is_refused(client: Client) -> None:
    """Django takes any of any column: an agent could guess a payer's number."""
    client.force_login(User.objects.create_superuser("boss"))
    client.raise_request_exception = False
    for page, address in pages():
        for field in page.model._meta.local_fields:
            for lookup in LOOKUPS:
                answer = client.get(address, {f"{field.name}__{lookup}": "99999"})
                assert answer.status_code in {400, 302}, (address, field.name, lookup, answer.status_code)


def test_each_filter_of_a_list_is_taken(client: Client) -> None:
    client.force_login(User.objects.create_superuser("boss"))
    product = Product.objects.create(sku="sale", name="Sale", price_minor=100, stock=5, flash_only=True)
    now = timezone.now()
    sales.announce(
        product_id=product.pk, units=2, former_price_minor=200, starts_at=now, ends_at=now + timedelta(1)
    )
    taken = 0
    for _, address in pages():
        listed = client.get(address).context["cl"]
        for shown in listed.filter_specs:
            for choice in shown.choices(listed):
                assert client.get(address + choice["query_string"]).status_code == 200, choice
                taken += 1
    assert taken > 100
    sale = "/admin/shop/flashsale/?starts_at__year="
    assert len(client.get(f"{sale}{now.year}").context["cl"].result_list) == 1
    for year in ("9999", "99999", "x"):
        assert client.get(sale + year)["Location"] == "/admin/shop/flashsale/?e=1"
