"""Compare the providers' daily bills with our facts: `manage.py bills compare|export`."""

import argparse
from datetime import date, datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from idempotency.management.base import LedgerCommand
from payments.channels import configured as channels
from payments.display import money
from payments.errors import ProviderError
from payments.models import Difference
from payments.reconciliation import bills, spreadsheet

FIRST_YEAR = 2000


class Command(LedgerCommand):
    """Bounded and safe to run again: a day that is compared twice lists nothing twice."""

    help = "Compare a day's bill with our facts, or write the differences as CSV."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["compare", "export"])
        parser.add_argument("--account", "--channel", help="one of the configured accounts (default: all)")
        parser.add_argument("--day", type=_day, help="YYYY-MM-DD (default: the account's yesterday)")
        parser.add_argument("--open", action="store_true", help="export: only what is not resolved")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["action"] == "export":
            self._export(options["account"], options["day"], only_open=options["open"])
        else:
            names = [options["account"]] if options["account"] else bills.billed()
            self._compare({account: _finished(account, options["day"]) for account in names})

    def _compare(self, days: dict[str, date]) -> None:
        failed = []
        for account, day in days.items():
            try:
                compared = bills.compare(account=account, day=day)
            except ProviderError as error:
                failed.append(account)
                self.stderr.write(f"{account} {day}: no bill: {error}")
                continue
            found = bills.open_differences(compared).count()
            theirs, ours = (
                money(minor, compared.currency) for minor in (compared.theirs_minor, compared.ours_minor)
            )
            lines = f"{compared.lines} lines, theirs {theirs}, ours {ours}, {found} open differences"
            self.stdout.write(f"{account} {day}: {lines}")
        if failed:
            raise CommandError(f"No bill of {', '.join(failed)}; above is why.")

    def _export(self, account: str | None, day: date | None, *, only_open: bool) -> None:
        rows = Difference.objects.select_related("comparison").order_by("id")
        if account:
            provider = channels.current().get(account)
            of_account = {"comparison__merchant": provider.merchant} if provider else {}
            rows = rows.filter(comparison__channel=provider.channel if provider else account, **of_account)
            # one that was switched off may have differences of former days
            if provider is None and not rows.exists():
                raise CommandError(f"{account!r} is not configured here.")
        if day:
            rows = rows.filter(comparison__day=day)
        if only_open:
            rows = rows.filter(resolved_at__isnull=True)
        for line in spreadsheet.export(rows.iterator(chunk_size=1000)):
            self.stdout.write(line, ending="")


def _day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if day.year < FIRST_YEAR:
        raise argparse.ArgumentTypeError(f"must be a day such as 2026-02-28, from {FIRST_YEAR} on")
    return day


def _finished(account: str, day: date | None) -> date:
    """Return the day to compare; refuse one that is not over."""
    provider = channels.current().get(account)
    if provider is None:
        raise CommandError(f"{account!r} is not configured here.")
    today = datetime.now(provider.zone).date()
    if day is not None and day >= today:
        raise CommandError(f"{day} is not over at {account}; compare it tomorrow.")
    return day or today - timedelta(days=1)
