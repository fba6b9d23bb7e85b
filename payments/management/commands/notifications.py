"""`manage.py notifications show|replay`: what providers told, and processing it again."""

from collections import Counter
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from idempotency.management.arguments import positive
from payments import webhooks
from payments.errors import ChannelUnavailable, ProviderError
from payments.models import Notification

FIELDS = ("channel", "event_type", "verdict", "detail", "attempts", "out_trade_no", "received_at", "processed_at")


class Command(BaseCommand):
    """Bounded and safe to run again: a fact counts once, however often its notification is processed."""

    help = "Show a kept notification, or process kept ones again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["show", "replay"])
        parser.add_argument("number", nargs="?", help="the provider's id of one notification")
        parser.add_argument("--verdict", choices=Notification.Verdict.values, help="replay all of this verdict")
        parser.add_argument("--limit", type=positive, default=1000, help="replay at most this many (default 1000)")

    def handle(self, *args: Any, **options: Any) -> None:
        rows = self._chosen(number=options["number"], verdict=options["verdict"])
        if options["action"] == "show":
            for row in rows[: options["limit"]]:
                self._show(row)
        else:
            self._replay(list(rows.order_by("pk").values_list("pk", flat=True)[: options["limit"]]))

    def _chosen(self, *, number: str | None, verdict: str | None) -> Any:
        if (number is None) == (verdict is None):
            raise CommandError("Name one notification, or give --verdict.")
        if verdict is not None:
            return Notification.objects.filter(verdict=verdict)
        rows = Notification.objects.filter(notification_id=number)
        if not rows.exists():
            raise CommandError(f"There is no notification {number!r}.")
        return rows

    def _show(self, row: Notification) -> None:
        self.stdout.write(self.style.MIGRATE_HEADING(row.notification_id))
        for name in FIELDS:
            self.stdout.write(f"  {name:13} {getattr(row, name)}")

    def _replay(self, numbers: list[int]) -> None:
        outcomes: Counter[str] = Counter()
        failed = 0
        for done, number in enumerate(numbers, 1):
            try:
                outcomes[webhooks.replay(number)] += 1
            except (ProviderError, ChannelUnavailable, webhooks.ProcessingFailed) as error:
                failed += 1
                row = Notification.objects.get(pk=number)
                why = f"{row.channel} is not configured here" if isinstance(error, ChannelUnavailable) else error
                self.stderr.write(f"{row.notification_id}: {why}")
            if done % 100 == 0 or done == len(numbers):
                self.stdout.write(f"{done} of {len(numbers)} …")
        for verdict, count in sorted(outcomes.items()):
            self.stdout.write(f"{verdict}: {count}")
        if failed:
            raise CommandError(f"{failed} could not be processed; see above.")
