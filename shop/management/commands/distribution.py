"""`manage.py distribution`: where each table stands past one primary, and what is in its way in this database."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from shop.distribution import PLAN, Distributed, Placement, obstacles, read_schema


class Command(BaseCommand):
    """Only reads. Fails where the database has tables or keys that the plan knows nothing of."""

    help = "Show where each table stands past one primary (docs/operations.md), and what would keep it from there."

    def handle(self, *args: Any, **options: Any) -> None:
        with connection.cursor() as cursor:
            found = obstacles(read_schema(cursor), PLAN)
        for name, placement in sorted(PLAN.items()):
            self.stdout.write(f"{name}: {_told(placement)} ({placement.because})")
            for sentence in found.get(name, ()):
                self.stdout.write(f"    in the way: {sentence}")
        if unknown := _unknown(found):
            raise CommandError(f"The plan in shop/distribution.py knows nothing of this: {'; '.join(unknown)}.")


def _told(placement: Placement) -> str:
    if isinstance(placement, Distributed):
        return f"by {placement.column}, with {placement.group}"
    return type(placement).__name__.lower()


def _unknown(found: dict[str, tuple[str, ...]]) -> list[str]:
    """A line for each table that has more in its way than the plan says."""
    lines = []
    for name, sentences in found.items():
        known = getattr(PLAN.get(name), "in_the_way", ())
        if unknown := [sentence for sentence in sentences if sentence not in known]:
            lines.append(f"{name}: {', '.join(unknown)}")
    return lines
