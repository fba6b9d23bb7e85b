"""`manage.py load_demo`: demo users with tokens, products, a sale, coupons. DEBUG only."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import transaction
from django.utils import timezone

from idempotency.management.base import LedgerCommand
from shop.devserver import demo
from shop.models import FlashSale, Product
from shop.sales import coupons

PRODUCTS: tuple[dict[str, Any], ...] = (
    {
        "sku": "mug",
        "name": "Enamel mug",
        "name_zh": "搪瓷杯",
        "picture": Product.Picture.MUG,
        "description": "350 ml of steel under two coats of enamel. Survives camp fires and double clicks.",
        "description_zh": "350 毫升钢杯，双层搪瓷。不怕篝火，也不怕连点两次。",
        "price_minor": 1990,
        "stock": 100_000,
    },
    {
        "sku": "poster",
        "name": "Mountain poster",
        "name_zh": "山景海报",
        "picture": Product.Picture.POSTER,
        "description": "50 × 70 cm on heavy uncoated paper, printed once: there are ten, and no more.",
        "description_zh": "50 × 70 厘米厚实无涂层纸，只印一次：共十张，售完即止。",
        "price_minor": 4500,
        "stock": 10,
    },
    {
        "sku": "sneaker",
        "name": "Trail sneaker",
        "name_zh": "越野跑鞋",
        "picture": Product.Picture.SNEAKER,
        "description": "Grip for wet rock. One pair for each buyer, first come, first served.",
        "description_zh": "湿滑岩面也能抓牢。每人限购一双，先到先得。",
        "price_minor": 29900,
        "stock": 100,
        "flash_only": True,
    },
)


class Command(LedgerCommand):
    """Add what is missing; a second run resets no stock, password or price."""

    help = (
        "Load demo users, products, flash sale and coupons (only with DEBUG on). Running it again changes nothing."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.DEBUG:
            raise CommandError("DEBUG is off: demo logins with known passwords must not exist here.")
        with transaction.atomic():
            added = demo.open_logins()
            for product in PRODUCTS:
                _, created = Product.objects.get_or_create(sku=product["sku"], defaults=product)
                added += created
            times = {"starts_at": (now := timezone.now()), "ends_at": now + timedelta(days=3650)}
            sale = {"units": 100, "former_price_minor": 39900, **times}
            FlashSale.objects.get_or_create(product=Product.objects.get(sku="sneaker"), defaults=sale)
            coupons.open_campaign(slug="welcome", name="Welcome", name_zh="新人券", count=50, percent_off=10)
        self.stdout.write(f"demo data is there ({added} added)")  # counted: users and products
