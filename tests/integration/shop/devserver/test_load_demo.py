"""`manage.py load_demo`."""

from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone
from rest_framework.authtoken.models import Token

from shop.models import Coupon, FlashSale, Product


def test_loads_what_the_contract_names_with_debug_alone(
    transactional_db: None, settings: Any, capsys: Any
) -> None:
    with pytest.raises(CommandError, match="DEBUG is off"):
        call_command("load_demo")
    assert not User.objects.exists()
    settings.DEBUG = True
    call_command("load_demo")

    assert {(t.user.username, t.key) for t in Token.objects.all()} == {
        ("demo", "demo-token"),
        ("other", "other-token"),
    }
    for name in ("demo", "other", "admin"):
        assert authenticate(username=name, password=name)
    assert User.objects.get(is_superuser=True).username == "admin"
    assert list(
        Product.objects.order_by("pk").values_list("sku", "price_minor", "currency", "stock", "flash_only")
    ) == [
        ("mug", 1990, "CNY", 100_000, False),
        ("poster", 4500, "CNY", 10, False),
        ("sneaker", 29900, "CNY", 100, True),
    ]
    assert "6 added" in capsys.readouterr().out
    assert Coupon.objects.filter(campaign__slug="welcome", drawn_by__isnull=True).count() == 50
    sale = FlashSale.objects.get()
    assert (sale.product.sku, sale.units, sale.sold) == ("sneaker", 100, 0)
    assert sale.starts_at <= timezone.now() < sale.ends_at

    # a second run resets nothing
    Product.objects.filter(sku="poster").update(stock=3, price_minor=1)
    user = User.objects.get(username="demo")
    user.set_password("changed")
    user.save()
    call_command("load_demo")

    assert Product.objects.get(sku="poster").stock == 3
    assert authenticate(username="demo", password="changed")
    assert "0 added" in capsys.readouterr().out


def test_the_first_migration_without_debug_shuts_the_logins(transactional_db: None, settings: Any) -> None:
    settings.DEBUG = True
    call_command("load_demo")
    mine = User.objects.get(username="other")
    mine.set_password("my own by now")
    mine.save()

    call_command("migrate", verbosity=0)
    assert authenticate(username="demo", password="demo")

    settings.DEBUG = False
    call_command("migrate", verbosity=0)
    assert [authenticate(username=name, password=name) for name in ("demo", "other", "admin")] == [None] * 3
    assert not Token.objects.exists()
    assert authenticate(username="other", password="my own by now")

    settings.DEBUG = True
    call_command("load_demo")
    assert authenticate(username="admin", password="admin").is_superuser
    assert Token.objects.get(key="demo-token").user.username == "demo"
