"""Checks of notifications for all channels: header names, times, readable bodies. Pure."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

from idempotency.webhooks import verifiers
from idempotency.webhooks.event import Event, NotGenuine, Unverifiable
from idempotency.webhooks.verifiers import Verifier
from payments.errors import NotificationMalformed, SignatureInvalid
from payments.providers.documents import UNREADABLE


def lower_case(headers: Mapping[str, str]) -> dict[str, str]:
    """Return `headers` by their lower-case names."""
    return {name.lower(): value for name, value in headers.items()}


def must_be_fresh(timestamp: str, *, now: float) -> None:
    """Check a signed time stamp, as every webhook's. Raises SignatureInvalid."""
    with _judged():
        verifiers.must_be_fresh(timestamp, now=now)


def must_be_signed(verifier: Verifier, headers: Mapping[str, str], body: bytes, now: datetime) -> None:
    """Require the sender of a notification to have signed it, by a verifier of any webhook.

    Raises:
        SignatureInvalid: it has not, or not lately; or we hold no key.
    """
    given = lower_case(headers)
    named = {name: given.get(name.lower(), "") for name in verifier.headers}
    with _judged():
        verifier.check(Event(sender="", id="", headers=named, body=body, received_at=now))


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Report a genuine body of an unknown shape as malformed, by the error's type only.

    Raises:
        NotificationMalformed: instead of what is `UNREADABLE` inside.
    """
    try:
        yield
    except UNREADABLE as error:
        raise NotificationMalformed(f"not a readable {what}: {type(error).__name__}") from None


@contextmanager
def _judged() -> Iterator[None]:
    try:
        yield
    except (NotGenuine, Unverifiable) as error:
        raise SignatureInvalid(str(error)) from None
