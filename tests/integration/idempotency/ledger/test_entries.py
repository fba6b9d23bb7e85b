"""Entries that the table refuses, from any writer."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import IntegrityError

from idempotency.models import LedgerEntry

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
FINISHED = {"state": "finished", "mode": "atomic", "response_status": 201, "finished_at": AT}
RUNNING = {"state": "running", "mode": "phased", "lease_until": AT}
UNCERTAIN = {"state": "uncertain", "mode": "phased"}


def write(**fields: Any) -> LedgerEntry:
    return LedgerEntry.objects.create(**{"scope": "user:1 POST things", "key": "k", "fingerprint": b""} | fields)


def test_entries_of_calls_are_stored() -> None:
    for number, fields in enumerate(
        (
            FINISHED,
            FINISHED | {"response_status": 200, "response_body": b"{}"},
            FINISHED | {"response_status": 499, "purged_at": AT},
            FINISHED | {"mode": "phased", "fence": 2},
            RUNNING,
            RUNNING | {"mode": "atomic", "lease_until": None},
            UNCERTAIN,
        )
    ):
        assert write(**fields, key=str(number)).pk


@pytest.mark.parametrize(
    "fields",
    [
        FINISHED | {"response_status": None},
        FINISHED | {"finished_at": None},
        RUNNING | {"response_status": 201},
        RUNNING | {"finished_at": AT},
        UNCERTAIN | {"response_status": 201, "finished_at": AT},
        FINISHED | {"response_status": 199},
        FINISHED | {"response_status": 500},
        RUNNING | {"lease_until": None},
        FINISHED | {"purged_at": AT, "response_body": b"{}"},
        UNCERTAIN | {"purged_at": AT},
        FINISHED | {"fence": 0},
        FINISHED | {"key": ""},
        FINISHED | {"scope": ""},
        FINISHED | {"state": "other"},
        FINISHED | {"mode": "other"},
    ],
    ids=str,
)
def test_half_an_entry_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError, match="ledger_entry_is_whole"):
        write(**fields)
