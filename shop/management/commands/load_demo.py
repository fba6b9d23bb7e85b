"""`manage.py load_demo`: the demo users, their API tokens and the demo products. Only where DEBUG is on."""

from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from rest_framework.authtoken.models import Token

from shop.models import Product

USERS = (
    # name (also the password), API token, superuser
    ("demo", "demo-token", False),
    ("other", "other-token", False),
    ("admin", "", True),
)

PRODUCTS: tuple[dict[str, Any], ...] = (
    {
        "sku": "mug",
        "name": "Enamel mug",
        "picture": Product.Picture.MUG,
        "description": "350 ml of steel under two coats of enamel. Survives camp fires and double clicks.",
        "price_minor": 1990,
        "stock": 100_000,
    },
    {
        "sku": "poster",
        "name": "Mountain poster",
        "picture": Product.Picture.POSTER,
        "description": "50 × 70 cm on heavy uncoated paper, printed once: there are ten, and no more.",
        "price_minor": 4500,
        "stock": 10,
    },
    {
        "sku": "sneaker",
        "name": "Trail sneaker",
        "picture": Product.Picture.SNEAKER,
        "description": "A hundred pairs, one for each buyer, first come, first served.",
        "price_minor": 29900,
        "stock": 100,
        "flash_only": True,
    },
)


class Command(BaseCommand):
    """Adds what is missing and leaves what is there: no stock, password or price is reset by a second run."""

    help = "Load the demo users and products (only with DEBUG on). Running it again changes nothing."

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.DEBUG:
            raise CommandError("DEBUG is off: demo logins with known passwords must not exist here.")
        with transaction.atomic():
            added = sum(self._user(*user) for user in USERS)
            for product in PRODUCTS:
                _, created = Product.objects.get_or_create(sku=product["sku"], defaults=product)
                added += created
        self.stdout.write(f"demo data is there ({added} added)")

    def _user(self, name: str, token: str, superuser: bool) -> bool:
        users = get_user_model()
        user, created = users.objects.get_or_create(
            username=name, defaults={"is_superuser": superuser, "is_staff": superuser}
        )
        if created:
            user.set_password(name)
            user.save(update_fields=["password"])
        if token:
            Token.objects.get_or_create(user=user, defaults={"key": token})
        return created
