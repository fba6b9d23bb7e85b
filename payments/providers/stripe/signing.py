"""Verification of Stripe's webhook events.

Source: Stripe, "Receive Stripe events in your webhook endpoint", verifying signatures (read 2026-11).
"""

from collections.abc import Mapping, Sequence

import stripe

from payments.errors import SignatureInvalid
from payments.providers.authenticity import lower_case, must_be_fresh


def verify(headers: Mapping[str, str], body: bytes, *, now: float, secrets: Sequence[str]) -> None:
    """Require one of `secrets` to have signed `body` less than 300 s from `now`. Raises SignatureInvalid."""
    header = lower_case(headers).get("stripe-signature", "")
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


def must_be_of_our_mode(event: Mapping[str, object], *, secret_key: str) -> None:
    """Refuse an event of another mode, live or test, than our API key's: a shared endpoint gets both."""
    mode = secret_key.split("_")[1:2]
    # our endpoint's secret signed it, so an event without a mode is of the endpoint's mode
    if mode in (["live"], ["test"]) and event.get("livemode", mode == ["live"]) is not (mode == ["live"]):
        raise SignatureInvalid("an event of the other mode, live or test")
