"""Send what is due to the endpoints of ``PAYMENTS["WEBHOOKS"]`` now: `manage.py deliver`."""

import math
from typing import Any

from django.core.management.base import CommandError, CommandParser

from idempotency.management.base import LedgerCommand
from payments.conf import config
from payments.deliveries import sending


class Command(LedgerCommand):
    """Bounded by what is due, and safe to run at any time, also beside the worker."""

    help = "Send what is due to your endpoints."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--endpoint", choices=list(config().webhooks), help="to this one alone")

    def handle(self, *args: Any, **options: Any) -> None:
        if not config().webhooks:
            self.stdout.write("No endpoint is configured.")
        failed = 0
        for name in [options["endpoint"]] if options["endpoint"] else config().webhooks:
            results = sending.send_due(name, seconds=math.inf)
            failed += results["not delivered"]
            self.stdout.write(f"{name}: {results['delivered']} delivered, {results['not delivered']} not")
        if failed:
            raise CommandError(f"{failed} not delivered; each has its answers in the admin.")
