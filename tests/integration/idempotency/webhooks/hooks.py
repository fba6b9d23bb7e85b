"""Webhooks of three senders; each applied event is one more row of `auth_group`."""

import hashlib
import hmac
import json
import os
import signal
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group
from django.db.models.functions import Now
from django.test import Client, RequestFactory
from django.urls import include, path

from idempotency.models import WebhookEvent
from idempotency.webhooks import Event, GitHub, apply_stored_events, webhook

SECRET = "It's a Secret to Everybody"
ATTEMPTS_MAX = 3
HOOKS = f"from {__name__} import send_and_die, work_and_die"  # for a process of its own

# what the next runs of the handler do; set by the test
PLAN: dict[str, Any] = {}


def apply(event: Event) -> Any:
    """Write a row, and then do what the plan says for this event."""
    Group.objects.create(name=f"{event.sender} {event.id}")
    for_it = PLAN.get(event.id)
    if isinstance(for_it, Exception):
        raise for_it
    if for_it == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return for_it() if callable(for_it) else None


@webhook("now", verify=GitHub(SECRET), headers=["X-Extra"], attempts_max=ATTEMPTS_MAX, max_bytes=1000)
def now(event: Event) -> Any:
    return apply(event)


@webhook("later", verify=GitHub(SECRET), defer=True, attempts_max=ATTEMPTS_MAX)
def later(event: Event) -> None:
    apply(event)


@webhook(
    "ordered",
    verify=GitHub(SECRET),
    id=lambda event: event.json["id"],
    entity=lambda event: event.json["order"],
    sequence=lambda event: event.json["number"],
    attempts_max=ATTEMPTS_MAX,
)
def ordered(event: Event) -> None:
    apply(event)


urlpatterns = [path("now", now), path("later", later), path("ordered", ordered), path("", include("shop.urls"))]


def signed(event_id: str, body: Any = None) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a request, as GitHub signs it."""
    raw = body if isinstance(body, bytes) else json.dumps({"id": event_id, **(body or {})}).encode()
    signature = hmac.new(SECRET.encode(), raw, hashlib.sha256).hexdigest()
    return raw, {"X-Hub-Signature-256": f"sha256={signature}", "X-GitHub-Delivery": event_id}


def send(to: str, event_id: str = "e1", body: Any = None, **headers: str) -> Any:
    """Send a signed request over all middleware; `headers` are more, or other ones."""
    raw, headers_signed = signed(event_id, body)
    client = Client(raise_request_exception=False, enforce_csrf_checks=True)
    return client.post(f"/{to}", raw, content_type="application/json", headers=headers_signed | headers)


def work_and_die(event_id: str) -> None:
    """Apply stored events until one ends the process."""
    PLAN[event_id] = "die"
    apply_stored_events()


def request_of(event_id: str = "e1", **more: Any) -> Any:
    """Make a signed request for a view that is called directly."""
    raw, headers = signed(event_id)
    return RequestFactory().generic("POST", "/", raw, "application/json", headers=headers, **more)


def send_and_die(event_id: str) -> None:
    """Send to `now` what its handler does not survive."""
    PLAN[event_id] = "die"
    now(request_of(event_id))


def step(number: int, order: str = "o1") -> Any:
    """Send an event of an order."""
    return send("ordered", f"{order}-{number}", {"order": order, "number": number})


def applied() -> list[str]:
    """The ids of the events that were applied, in the order in which they were."""
    return [name.split()[1] for name in Group.objects.order_by("pk").values_list("name", flat=True)]


def applied_days_ago(days: int) -> None:
    """Have all events that are applied be so for so long."""
    WebhookEvent.objects.filter(applied_at__isnull=False).update(applied_at=Now() - timedelta(days))
