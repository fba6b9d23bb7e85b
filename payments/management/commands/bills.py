"""Compare the providers' daily bills with our facts: `manage.py bills compare|export`."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from payments.channels import configured as channels
from payments.display import money
from payments.errors import ChannelUnavailable, ProviderError
from payments.models import Difference
from payments.reconciliation import bills


class Command(BaseCommand):
    """Bounded and safe to run again: a day that is compared twice lists nothing twice."""

    help = "Compare a day's bill with our facts, or write the differences as CSV."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["compare", "export"])
        parser.add_argument("--account", "--channel", help="one of the configured accounts (default: all)")
        parser.add_argument("--day", type=date.fromisoformat, help="YYYY-MM-DD (default: yesterday)")
        parser.add_argument("--open", action="store_true", help="export: only what is not resolved")

    def handle(self, *args: Any, **options: Any) -> None:
        day = options["day"] or datetime.now(UTC).date() - timedelta(days=1)
        if options["action"] == "export":
            self._export(options["account"], options["day"], only_open=options["open"])
        else:
            self._compare([options["account"]] if options["account"] else bills.billed(), day)

    def _compare(self, names: list[str], day: date) -> None:
        failed = []
        for account in names:
            self._must_be_over(account, day)
        for account in names:
            try:
                compared = bills.compare(account=account, day=day)
            except ChannelUnavailable as error:
                raise CommandError(f"{account!r} is not configured here.") from error
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
            raise CommandError(f"No bill of {', '.join(failed)}; try again later.")

    def _must_be_over(self, account: str, day: date) -> None:
        """Refuse a day that is not over: half of it would count as done for the timer."""
        provider = channels.current().get(account)
        if provider is not None and day >= datetime.now(provider.zone).date():
            raise CommandError(f"{day} is not over at {account}; compare it tomorrow.")

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
        for line in bills.export(rows.iterator(chunk_size=1000)):
            self.stdout.write(line, ending="")
