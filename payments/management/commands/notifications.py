"""Process notifications again: `manage.py notifications replay`."""

from collections import Counter
from typing import Any

from django.core.management.base import CommandError, CommandParser

from idempotency.management.base import LedgerCommand, active_user, positive
from payments.channels import configured as channels
from payments.models import Notification
from payments.operations import actions


class Command(LedgerCommand):
    """Bounded and safe to run again: a fact counts once, however often it is processed."""

    help = "Process stored notifications again."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        replay = actions.add_parser("replay", help="process again; of each, the history says who did it and why")
        replay.add_argument("number", nargs="?", help="the provider's id of one notification")
        replay.add_argument("--verdict", choices=Notification.Verdict.values, help="all of this verdict")
        replay.add_argument("--limit", type=positive, default=1000, help="at most this many (%(default)s)")
        replay.add_argument("--operator", required=True, help="who decides: the name of an active user")
        replay.add_argument("--note", required=True, help="why; stored in the history")

    def handle(self, *args: Any, **options: Any) -> None:
        rows = self._chosen(number=options["number"], verdict=options["verdict"])
        if not rows.exists():
            self.stdout.write("There is no notification of this verdict.")
        by = _operator(options["operator"], options["note"].strip())
        self._replay(list(rows.order_by("pk").values_list("pk", flat=True)[: options["limit"]]), by)

    def _chosen(self, *, number: str | None, verdict: str | None) -> Any:
        if (number is None) == (verdict is None):
            raise CommandError("Name one notification, or give --verdict.")
        if verdict is not None:
            return Notification.objects.filter(verdict=verdict)
        rows = Notification.objects.filter(channel__in=channels.names(), notification_id=number)
        if not rows.exists():
            raise CommandError(f"There is no notification {number!r}.")
        return rows

    def _replay(self, numbers: list[int], by: actions.Operator) -> None:
        outcomes: Counter[str] = Counter()
        failed = 0
        for done, number in enumerate(numbers, 1):
            row = Notification.objects.defer("body", "headers").get(pk=number)
            result = actions.process_again(row, by=by)
            if result.done:
                outcomes[result.verdict] += 1
            else:
                failed += 1
                self.stderr.write(f"{row.notification_id}: {' '.join(result.sentences)}")
            if done % 100 == 0 or done == len(numbers):
                self.stdout.write(f"{done} of {len(numbers)} …")
        for verdict, count in sorted(outcomes.items()):
            self.stdout.write(f"{verdict}: {count}")
        if failed:
            raise CommandError(f"{failed} could not be processed; see above.")


def _operator(name: str, reason: str) -> actions.Operator:
    if not reason:
        raise CommandError("--note says nothing: the history stores the reason.")
    return actions.Operator(user_id=active_user(name).pk, reason=reason)
