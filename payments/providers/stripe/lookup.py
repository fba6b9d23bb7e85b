"""Stripe's library with our errors, bounded lists, and lookups by our numbers.

Source: Stripe API reference, "Errors", "Pagination", "Search" (read 2026-11).
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import stripe

from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.providers.answers import must_match
from payments.providers.documents import text_of
from payments.providers.stripe.facts import CHANNEL, about, number_of, refund_number_of
from payments.providers.transport import Answer, reading

PAGE = 100  # the most that Stripe lists at once
# a lookup must end within the time of a phased call, see `payments.conf.Limits.wait_seconds`
LOOKUP_PAGES = 2
REFUND_PAGES = 10
# an attempt is submitted while its order can be paid: 30 minutes, with as much again to spare
LOOKUP_SECONDS = 3600
SKEW_SECONDS = 60
# Stripe's search is a minute behind, and up to an hour in an outage
SEARCH_LAG_SECONDS = 3600

Document = dict[str, Any]


class TooMany(OutcomeUnknown):
    """A list that our bound cut off."""


class Transport(stripe.HTTPClient):
    """HTTP client of `stripe.StripeClient` by our `send`. Thread-safe.

    So calls have our time-outs, pool and limits, are never sent twice, and failures show whether they left this
    machine, which the library's own clients do not.
    """

    name = "httpx"

    def __init__(self, send: Callable[..., Answer]) -> None:
        super().__init__()
        self._send = send

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        post_data: Any = None,
        *,
        _usage: list[str] | None = None,
    ) -> tuple[str, int, Mapping[str, str]]:
        """Send one call; raises as `payments.providers.transport.send`."""
        # the library would send this machine's name, and how long our last call took
        given = {
            name: value
            for name, value in (headers or {}).items()
            if not name.lower().startswith("x-stripe-client-")
        }
        given["User-Agent"] = "payonce"
        received = self._send(method.upper(), url, headers=given, content=post_data or None)
        return received.content.decode(errors="replace"), received.status, received.headers


@contextmanager
def answered() -> Iterator[None]:
    """Translate the library's errors around a call and the reading of its answer.

    Errors of the network come from `Transport` and pass through.
    """
    try:
        with reading("document"):
            yield
    except stripe.RateLimitError as error:
        raise ProviderUnavailable(f"Stripe asks for fewer calls: {error.user_message}") from error
    except stripe.AuthenticationError as error:
        raise ProviderUnavailable(f"Stripe does not take our key: {error.user_message}") from error
    except (stripe.APIError, stripe.APIConnectionError) as error:
        # also 409: a call with the same Idempotency-Key is still running. Hidden, because the library's text of an
        # answer that it cannot read is that answer
        raise OutcomeUnknown(f"Stripe answered {error.http_status} without saying what it did") from None
    except stripe.StripeError as error:
        kind = (error.error and error.error.to_dict().get("type")) or type(error).__name__
        raise ProviderRejected(error.code or str(kind), error.user_message or "") from error


def listed(ask: Callable[..., Any], wanted: Document, *, most_pages: int) -> Iterator[Document]:
    """Yield every object of a list, newest first; raises `TooMany` after `most_pages`."""
    wanted = {**wanted, "limit": PAGE}
    for _ in range(most_pages):
        with answered():
            page = ask(wanted).to_dict()
            entries, more = list(page["data"]), page["has_more"]
        yield from entries
        if not more or not entries:
            return
        wanted["starting_after"] = entries[-1]["id"]
    raise TooMany(f"Stripe lists more than {most_pages * PAGE} objects")


def born_at_of(number: str) -> float | None:
    """Return the time in our number (RFC 9562, version 7) as seconds since the epoch, or None."""
    try:
        known = uuid.UUID(hex=number)
    except ValueError:
        return None
    return (known.int >> 80) / 1000 if known.version == 7 else None


class Lookup:
    """Search by our numbers, with the library's services."""

    def __init__(self, v1: Any, *, clock: Callable[[], float]) -> None:
        self._v1 = v1
        self._clock = clock

    def intent(self, out_trade_no: str, reference: str) -> Document | None:
        """Find the intent of our number; None if Stripe never saw it.

        Raises:
            ProviderRejected: `reference` is unknown there, although Stripe gave it to us.
            OutcomeUnknown: too many others were opened beside it to be sure.
        """
        if reference:
            return self.retrieved(out_trade_no, reference)
        born_at = born_at_of(out_trade_no)
        if born_at is None or self._clock() > born_at + LOOKUP_SECONDS + SEARCH_LAG_SECONDS:
            return self._searched(out_trade_no)
        # a search lags behind, a list does not; our number holds the earliest time of the intent
        window = {"gte": int(born_at) - SKEW_SECONDS, "lte": int(born_at) + LOOKUP_SECONDS}
        wanted = {"created": window, "expand": ["data.latest_charge"]}
        try:
            with reading("payment intents"):
                made = listed(self._v1.payment_intents.list, wanted, most_pages=LOOKUP_PAGES)
                return next((intent for intent in made if number_of(intent) == out_trade_no), None)
        except TooMany:
            found = self._searched(out_trade_no)
            if found is None:
                raise
            return found

    def retrieved(self, out_trade_no: str, reference: str) -> Document:
        """Fetch the intent `reference`, which must be the one of our number."""
        wanted = {"expand": ["latest_charge"]}
        with answered():
            intent: Document = self._v1.payment_intents.retrieve(reference, wanted).to_dict()
            must_match(CHANNEL, asked={"id": reference, "out_trade_no": out_trade_no}, answer=about(intent))
            text_of(intent, "status")
        return intent

    def _searched(self, out_trade_no: str) -> Document | None:
        quoted = out_trade_no.replace("\\", "\\\\").replace("'", "\\'")
        wanted = {"query": f"metadata['out_trade_no']:'{quoted}'", "expand": ["data.latest_charge"]}
        with answered():
            found = self._v1.payment_intents.search(wanted).to_dict()["data"]
            for intent in found:
                must_match(CHANNEL, asked={"out_trade_no": out_trade_no}, answer=about(intent))
            # one, unless our metadata was copied by hand; then the one that moved money counts
            return max(found, key=lambda intent: bool(intent["status"] == "succeeded"), default=None)

    def refund(self, intent_id: str, out_refund_no: str) -> Document | None:
        """Find the refund of our number among those of the intent; None if there is none."""
        wanted = {"payment_intent": intent_id, "expand": ["data.payment_intent"]}
        made = listed(self._v1.refunds.list, wanted, most_pages=REFUND_PAGES)
        for refund in made:
            must_match(CHANNEL, asked={"payment_intent": intent_id}, answer=about(refund))
            if refund_number_of(refund) == out_refund_no:
                return refund
        return None
