"""The list of daily bills: what is open of each day, in as many statements for one day as for many."""

import re
from datetime import date, timedelta

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments.models import BillComparison, Difference

FIRST = date(2026, 11, 20)


def bill(day: date, *, still_open: int) -> None:
    """Compare a day, with one difference that is resolved and as many as `still_open` that are not."""
    made = BillComparison.objects.create(
        channel="wechat", merchant="m", day=day, currency="CNY", lines=2, theirs_minor=0, ours_minor=0
    )
    for number in range(still_open + 1):
        Difference.objects.create(
            comparison=made,
            kind="missing_here",
            moved="paid",
            provider_txn_id=str(number),
            theirs_minor=1,
            currency="CNY",
            resolved_at=None if number else timezone.now(),
            resolution="" if number else "seen",
        )


def test_each_day_says_what_is_open(admin_client: Client) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as statements:
            shown = admin_client.get("/admin/payments/billcomparison/").text
        found.append(re.findall(r'field-open_lines">.*?payments-badge[^>]*>([^<]*)', shown))
        return len(statements)

    found: list[list[str]] = []
    bill(FIRST, still_open=2)
    one = asked()
    for days in (1, 2, 3):
        bill(FIRST + timedelta(days), still_open=days - 1)
    assert asked() == one
    assert found == [["2 open"], ["2 open", "1 open", "agrees", "2 open"]]
