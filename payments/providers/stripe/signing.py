"""Verification and reading of Stripe's webhook events.

Source: Stripe, "Receive Stripe events in your webhook endpoint", verifying signatures (read 2026-11).
"""

import json
from collections.abc import Mapping, Sequence

import stripe

from payments.errors import SignatureInvalid
from payments.providers.authenticity import lower_case, must_be_fresh, readable
from payments.providers.base import Notice
from payments.providers.documents import text_of
from payments.providers.stripe.facts import facts_of, refund_news


def read_event(
    *,
    headers: Mapping[str, str],
    body: bytes,
    now: float,
    secrets: Sequence[str],
    secret_key: str,
    merchant: str,
) -> Notice:
    """Verify and read an event, as `Provider.read_notification`.

    Args:
        now: seconds since the epoch.
        secrets: of our endpoint; one of them must have signed.
        secret_key: our API key, which shows test or live mode.
        merchant: our account; an endpoint may get events of connected accounts, whose facts are theirs.
    """
    _verify(lower_case(headers).get("stripe-signature", ""), body, now=now, secrets=secrets)
    with readable("event"):
        event = json.loads(body)
        if event.get("object", "event") != "event":
            raise ValueError("not an event")
        _must_be_of_our_mode(event, secret_key=secret_key)
        account = merchant if event.get("account") is None else text_of(event, "account")
        return Notice(
            notification_id=text_of(event, "id"),
            event_type=text_of(event, "type"),
            facts=facts_of(event, merchant=account),
            refund=refund_news(event) if account == merchant else None,
        )


def _verify(header: str, body: bytes, *, now: float, secrets: Sequence[str]) -> None:
    """Require one of `secrets` to have signed `body` less than 300 s from `now`. Raises SignatureInvalid."""
    if not header or not header.isascii():
        raise SignatureInvalid("the Stripe-Signature header is missing")
    parts = [item.partition("=") for item in header.split(",")]
    timestamp = next((value for name, _, value in parts if name == "t"), "")
    # here and not in the library, which accepts time stamps of the future and has only one clock
    must_be_fresh(timestamp, now=now)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise SignatureInvalid("the body is not text, so nobody signed it") from None
    for secret in secrets:
        try:
            stripe.WebhookSignature.verify_header(text, header, secret, None)
        except stripe.SignatureVerificationError:
            continue
        return
    raise SignatureInvalid("the signature does not verify")


def _must_be_of_our_mode(event: Mapping[str, object], *, secret_key: str) -> None:
    """Refuse an event of the other mode, live or test: a shared endpoint gets both."""
    mode = secret_key.split("_")[1:2]
    # our endpoint's secret signed it, so an event without a mode is of the endpoint's mode
    if mode in (["live"], ["test"]) and event.get("livemode", mode == ["live"]) is not (mode == ["live"]):
        raise SignatureInvalid("an event of the other mode, live or test")
