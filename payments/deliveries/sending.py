"""Sending: at least once, in order per payment, each attempt under the same ``webhook-id``.

A claim of a row is committed before its request leaves, and counts for `LEASE_SECONDS`: the row of a process that
was killed is due again after that. Unique `delivery_one_at_a_time` refuses a second one of a payment.
"""

import json
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import httpx
from django.db import IntegrityError

from idempotency.conf import config as idempotency
from idempotency.postgres.statements import Statement, send
from idempotency.webhooks import Unverifiable
from payments.attempts.calling import must_be_outside_transactions
from payments.conf import Endpoint, config
from payments.deliveries import queries
from payments.deliveries.endpoints import signer
from payments.display import ANSWERED
from payments.errors import ProviderError
from payments.providers import transport
from payments.providers.settings_fields import ConfigError
from payments.settlement import backoff

TIMEOUT_SECONDS = 10.0
LEASE_SECONDS = 30  # longer than any attempt
SENT_AT_ONCE = 2  # to one endpoint
ANSWER_BYTES_MAX = 65_536
PASS_SECONDS = 10.0
REMOVED = "given up: there is no such endpoint any more"


@dataclass(frozen=True, slots=True)
class _Claimed:
    id: UUID
    type: str
    sequence: int
    data: str
    created_at: datetime
    attempt: int

    @property
    def body(self) -> bytes:
        decided = json.loads(self.data)
        data = {**decided, "entity": decided["payment"] or self.id.hex, "sequence": self.sequence}
        at = self.created_at.astimezone(UTC).isoformat()
        return json.dumps({"type": self.type, "timestamp": at, "data": data}).encode()


def due_endpoints() -> list[str]:
    """Name the configured endpoints for which something is due."""
    names = list(config().webhooks)
    return [name for (name,) in send(Statement(queries.DUE, [names]))[0]] if names else []


def send_due(name: str) -> Counter[str]:
    """Send what is due, until the endpoint fails or `PASS_SECONDS` are over; count the ends.

    Transaction: NONE may be open. Any number may run at once.
    """
    must_be_outside_transactions()
    endpoint, results = config().webhooks[name], Counter[str]()
    session, ends_at = transport.client(timeout_seconds=TIMEOUT_SECONDS), time.monotonic() + PASS_SECONDS
    while time.monotonic() < ends_at and (row := _claim(name)):
        status, answer = _attempt(session, name, endpoint, row)
        if 200 <= status < 300:
            send(Statement(queries.DELIVERED, [answer, row.id, row.attempt]))
            results["delivered"] += 1
            continue
        delay = backoff.delay_seconds(row.attempt - 1)
        # one that is gone takes no more (Standard Webhooks 1.0.0): given up at once, for a person
        is_gone = status == httpx.codes.GONE
        send(Statement(queries.NOT_DELIVERED, [is_gone, answer, delay, row.id, row.attempt]))
        results["not delivered"] += 1
        if not status or status >= 500:
            break
    return results


def send_again(delivery_id: UUID) -> bool:
    """Make a delivery due now, and for three days more; return False while it is being sent."""
    return bool(send(Statement(queries.AGAIN, [delivery_id]))[0])


def drop(*, limit: int) -> int:
    """Forget up to `limit` deliveries that ended ``TOMBSTONE_SECONDS`` ago, of a payment's last one the log.

    Those that wait for a removed endpoint are given up first, once their time is over. Return how many it were.
    """
    while len(send(Statement(queries.END, [list(config().webhooks), limit, REMOVED]))[0]) == limit:
        pass
    return len(send(Statement(queries.DROP, [idempotency().tombstone_seconds, limit]))[0])


def _claim(name: str) -> _Claimed | None:
    try:
        (found,) = send(Statement(queries.CLAIM, [LEASE_SECONDS, name, SENT_AT_ONCE, name]))
    except IntegrityError:  # another process has just taken another one of the same payment
        return None
    return _Claimed(*found[0]) if found else None


def _attempt(session: httpx.Client, name: str, endpoint: Endpoint, row: _Claimed) -> tuple[int, str]:
    """Send a delivery; return the status, 0 without an answer, and words for the log."""
    try:
        body = row.body
        signed = signer(name, endpoint).sign(row.id.hex, body, at=time.time())
        headers = {"Content-Type": "application/json", **signed}
        request = session.build_request("POST", endpoint.url, content=body, headers=headers)
        status = transport.status_of(session, request, bytes_max=ANSWER_BYTES_MAX)
    except (ProviderError, ConfigError, Unverifiable, httpx.InvalidURL) as error:
        return 0, str(error)
    return status, ANSWERED % {"status": status}
