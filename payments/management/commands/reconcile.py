"""Ask the providers about everything that is due, or open, now: `manage.py reconcile`."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from idempotency.management.base import LedgerCommand, positive
from payments.reconciliation import reconcile

LIMIT = 1000


class Command(LedgerCommand):
    """Bounded and safe to run again, also beside the timer."""

    help = "Ask the payment providers about open attempts and refunds that are due."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--all",
            action="store_true",
            help="about every one that is open now, each once, due or not: a provider was off, or after a restore",
        )
        parser.add_argument(
            "--limit",
            type=positive,
            help=f"ask about at most this many (default {LIMIT}, with --all no limit)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        limit = options["limit"]
        passes = reconcile.all_open(limit=limit) if options["all"] else reconcile.all_due(limit=limit or LIMIT)
        count = unanswered = 0
        for asked in passes:
            count += asked.count
            unanswered += asked.unanswered
            self.stdout.write(f"asked about {count} …")
        if unanswered:
            raise CommandError(f"asked about {count}, without an answer for {unanswered}: the log says why.")
        self.stdout.write(self.style.SUCCESS(f"done: asked about {count}."))
