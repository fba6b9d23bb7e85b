"""`manage.py reconcile`: ask the providers about everything that is due, now."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from idempotency.management.arguments import positive
from payments import reconcile


class Command(BaseCommand):
    """Bounded and safe to run again, also beside the timer."""

    help = "Ask the payment providers about open attempts and refunds that are due."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--limit", type=positive, default=1000, help="ask about at most this many (default 1000)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        left = options["limit"]
        while left > 0 and (asked := reconcile.run_due(limit=min(left, reconcile.BATCH))):
            left -= asked
            self.stdout.write(f"asked about {options['limit'] - left} …")
        self.stdout.write(self.style.SUCCESS(f"done: asked about {options['limit'] - left}."))
