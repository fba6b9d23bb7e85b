"""The values in PostgreSQL's details of an error are neither logged nor stored."""

import json
import logging

import pytest
from django.db import DatabaseError, connection, transaction

from payments.models import Anomaly, Notification
from payments.settlement import notifications
from shop.platform.logs import json_formatter

PAYER = "2088102122458832"
CAME = Notification(
    channel="alipay", notification_id="n-1", event_type="TRADE_SUCCESS", body=b"buyer_id=1", digest="digest"
)

REFUSED = {
    "a key": "INSERT INTO planted VALUES (%(value)s), (%(value)s)",
    "a row": "INSERT INTO planted VALUES (%(value)s || E'\\n\\nof two lines')",
    "a text": "INSERT INTO planted VALUES ('', '' || %(value)s)",
    "a table": "INSERT INTO planted VALUES (E'of two lines\\n+------------------+\\n\\n' || %(value)s)",
}

pytestmark = pytest.mark.django_db


def refused(sql: str) -> DatabaseError:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                "CREATE TEMPORARY TABLE planted (value text UNIQUE CHECK (value !~ 'lines'), number int)"
            )
            cursor.execute(sql, {"value": PAYER})
    except DatabaseError as error:
        return error
    raise AssertionError("PostgreSQL took it")


def logged(error: Exception, message: str, *arguments: object) -> dict[str, str]:
    """The log line of an error; the payer is not in it."""
    with_traceback = (type(error), error, error.__traceback__)
    line = json_formatter().format(
        logging.LogRecord("payments", logging.ERROR, "", 0, message, arguments, with_traceback)
    )
    assert PAYER not in line
    said: dict[str, str] = json.loads(line)
    return said


@pytest.mark.parametrize("kind", REFUSED)
def test_no_log_line_has_them(kind: str) -> None:
    error = RuntimeError("while it was kept")
    error.__cause__ = refused(REFUSED[kind])
    said = logged(error, "not kept: %s", error.__cause__)
    first, last = str(error.__cause__).partition("\n")[0], "RuntimeError: while it was kept"
    assert said["event"] == f"not kept: {first}"
    assert f"Error: {first}\n\nThe above exception" in said["exception"]
    assert said["exception"].endswith(last)


def test_nor_has_that_of_several_at_once() -> None:
    faults, last = [refused(sql) for sql in REFUSED.values()], RuntimeError("a last one")
    last.__cause__ = faults[0]
    said = logged(ExceptionGroup("some days failed", [*faults, ExceptionGroup("more", [last])]), "failed")[
        "exception"
    ]
    for fault in faults:
        assert str(fault).partition("\n")[0] in said
    assert "RuntimeError: a last one" in said


@pytest.mark.parametrize("kind", REFUSED)
def test_no_failed_notification_keeps_them(kind: str) -> None:
    error = refused(REFUSED[kind])
    assert PAYER in str(error)
    notifications.store_failed(CAME, error=error, for_good=False)
    for kept in (Notification.objects.get().detail, json.dumps(Anomaly.objects.get().detail)):
        assert "Error: " in kept
        assert PAYER not in kept
