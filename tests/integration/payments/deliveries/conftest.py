"""An endpoint over real HTTP: it verifies as a receiver does, and answers as the test says."""

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from django.db import connection
from django.utils.datastructures import CaseInsensitiveMapping

from idempotency.webhooks import Event, StandardWebhooks
from payments.testing.relay import Reply, Server
from tests.integration.payments.conftest import changed


def secret(letter: str) -> str:
    return "whsec_" + base64.b64encode(letter.encode() * 32).decode()


class Receiver(Server):
    def __init__(self) -> None:
        self.answers: list[int | Reply] = []  # the next ones, or their status; 200 where there is none
        self.received: list[Event] = []  # genuine ones
        self.secrets = [secret("a")]  # that it verifies with
        super().__init__(self._take)
        self.url += "/hook"

    def _take(self, asked: BaseHTTPRequestHandler, body: bytes) -> Reply:
        headers = CaseInsensitiveMapping(dict(asked.headers.items()))
        event = Event(
            sender="us", id=headers["webhook-id"], headers=headers, body=body, received_at=datetime.now(UTC)
        )
        StandardWebhooks(self.secrets).check(event)
        self.received.append(event)
        answer = self.answers.pop(0) if self.answers else 200
        return answer if isinstance(answer, Reply) else Reply(status=answer, headers={"Location": "/elsewhere"})

    def heard(self, payment_id: Any = None) -> list[tuple[str, int]]:
        """Type and sequence of each event, in order; of one payment or all."""
        said = [json.loads(event.body) for event in self.received]
        wanted = payment_id and payment_id.hex
        return [
            (one["type"], one["data"]["sequence"])
            for one in said
            if not wanted or one["data"]["payment"] == wanted
        ]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.stop()


@pytest.fixture
def endpoint(receiver: Receiver, settings: Any, channels: None) -> Callable[..., None]:
    """Configure an endpoint at the receiver; done once, for all events, as ``books``."""

    def configure(name: str = "books", **values: Any) -> None:
        given = {"URL": receiver.url, "SECRETS": secret("a"), **values}
        others = settings.PAYMENTS.get("WEBHOOKS", {})
        settings.PAYMENTS = {**settings.PAYMENTS, "WEBHOOKS": {**others, name: given}}

    settings.PAYMENTS = changed(PROVIDERS=settings.PAYMENTS["PROVIDERS"], WEBHOOKS={})
    configure()
    return configure


def pass_by(seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE payments_delivery SET due_at = due_at - make_interval(secs => %s),"
            " ends_at = ends_at - make_interval(secs => %s)",
            [seconds, seconds],
        )
