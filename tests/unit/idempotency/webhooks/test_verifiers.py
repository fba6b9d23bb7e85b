"""Verifiers against the senders' documented vectors and against tampered requests.

Sources, all read 2026-11: GitHub, "Validating webhook deliveries", testing; Slack, "Verifying requests from Slack";
Svix, "Verifying webhooks manually", whose example is the one of Standard Webhooks' libraries. Stripe, Shopify and
PayPal publish no signed example: Stripe's own library, `hmac` and a certificate of ours sign here.
"""

import base64
import hmac
import json
import math
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
import stripe
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from django.utils.datastructures import CaseInsensitiveMapping

from idempotency.webhooks import (
    Event,
    GitHub,
    Hmac,
    NotGenuine,
    PayPal,
    Shopify,
    Slack,
    StandardWebhooks,
    Stripe,
    Unverifiable,
    Verifier,
)

STRIPE_TIME = 1_790_000_000
STRIPE_BODY = b'{"id": "evt_1", "type": "charge.succeeded"}'
SHOPIFY_BODY = b'{"id": 820982911946154508}'
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
    b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
CERTIFICATE = "https://api.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-1d93a270"
PAYPAL_BODY = b'{"id": "WH-9UG43882HX7271132-6E0871324L7949614", "event_type": "PAYMENT.SALE.COMPLETED"}'
PAYPAL_TIME = datetime(2026, 11, 24, 12, tzinfo=UTC)
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certificate(*, until: datetime = PAYPAL_TIME + timedelta(days=1)) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "messageverificationcerts.paypal.com")])
    builder = x509.CertificateBuilder(name, name, KEY.public_key(), 1, PAYPAL_TIME - timedelta(days=9), until)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def stripe_signature(body: bytes, secret: str) -> str:
    """By Stripe's library; the header is as it documents it."""
    signed = f"{STRIPE_TIME}.{body.decode()}"
    return f"t={STRIPE_TIME},v1={stripe.WebhookSignature._compute_signature(signed, secret)},v0=old"


def paypal_signature(webhook_id: str) -> str:
    signed = f"t-1|2026-11-24T12:00:00Z|{webhook_id}|{zlib.crc32(PAYPAL_BODY)}".encode()
    return base64.b64encode(KEY.sign(signed, padding.PKCS1v15(), hashes.SHA256())).decode()


class Case(NamedTuple):
    scheme: Callable[[Any], Verifier]
    secret: str
    at: int
    body: bytes
    headers: dict[str, str]
    id: str = ""  # empty: such a request has none


SVIX = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1a,other v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
GITHUBS = {
    "X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    "X-GitHub-Delivery": "72d3162e",
}
SLACKS = {
    "X-Slack-Request-Timestamp": "1531420618",
    "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
}
STRIPES = {"Stripe-Signature": stripe_signature(STRIPE_BODY, "whsec_stripe")}
SHOPIFYS = {
    "X-Shopify-Hmac-SHA256": base64.b64encode(hmac.digest(b"hush", SHOPIFY_BODY, "sha256")).decode(),
    "X-Shopify-Webhook-Id": "b54557e4",
}
HMACS = {
    "X-Signature": hmac.digest(b"hush", f"{STRIPE_TIME}.".encode() + STRIPE_BODY, "sha256").hex(),
    "X-Time": str(STRIPE_TIME),
}
UNTIMED = {"X-Signature": hmac.digest(b"hush", STRIPE_BODY, "sha256").hex()}
PAYPALS = {
    "PAYPAL-TRANSMISSION-ID": "t-1",
    "PAYPAL-TRANSMISSION-TIME": "2026-11-24T12:00:00Z",
    "PAYPAL-TRANSMISSION-SIG": paypal_signature("WH-ID"),
    "PAYPAL-CERT-URL": CERTIFICATE,
    "PAYPAL-AUTH-ALGO": "SHA256withRSA",
}
SVIX_SECRET, SVIX_BODY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
CASES = {
    "standard": Case(StandardWebhooks, SVIX_SECRET, 1614265330, SVIX_BODY, SVIX, SVIX["webhook-id"]),
    "github": Case(GitHub, "It's a Secret to Everybody", 0, b"Hello, World!", GITHUBS, "72d3162e"),
    "slack": Case(Slack, "8f742231b10e8888abcd99yyyzzz85a5", 1531420618, SLACK_BODY, SLACKS),
    "stripe": Case(Stripe, "whsec_stripe", STRIPE_TIME, STRIPE_BODY, STRIPES, "evt_1"),
    "shopify": Case(Shopify, "hush", 0, SHOPIFY_BODY, SHOPIFYS, "b54557e4"),
    "hmac": Case(
        lambda secret: Hmac(secret, header="X-Signature", time_header="X-Time"),
        *("hush", STRIPE_TIME, STRIPE_BODY, HMACS, "evt_1"),
    ),
    "untimed": Case(lambda secret: Hmac(secret, header="X-Signature"), "hush", 0, STRIPE_BODY, UNTIMED, "evt_1"),
    "paypal": Case(
        lambda secret: PayPal(secret, fetch=lambda address: certificate()),
        *("WH-ID", int(PAYPAL_TIME.timestamp()), PAYPAL_BODY, PAYPALS, json.loads(PAYPAL_BODY)["id"]),
    ),
}
TIMED = ("standard", "slack", "stripe", "hmac")


def event(name: str, *, later_seconds: float = 0, body: bytes | None = None, **headers: str) -> Event:
    case = CASES[name]
    return Event(
        sender=name,
        id="",
        headers=CaseInsensitiveMapping({**case.headers, **headers}),
        body=case.body if body is None else body,
        received_at=datetime.fromtimestamp(case.at + later_seconds, UTC),
    )


def verifier(name: str, secret: Any = None) -> Verifier:
    case = CASES[name]
    return case.scheme(case.secret if secret is None else secret)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("form", [str, lambda own: ["b3RoZXI=", own], lambda own: lambda: (own, "b3RoZXI=")])
def test_the_documented_request_verifies(name: str, form: Callable[[str], Any]) -> None:
    scheme = verifier(name, form(CASES[name].secret))
    scheme.check(event(name, later_seconds=299 if name in TIMED else 0))
    assert scheme.fault() == ""
    if number := CASES[name].id:
        assert scheme.id_of(event(name)) == number


@pytest.mark.parametrize("name", CASES)
def test_a_tampered_or_foreign_one_does_not(name: str) -> None:
    with pytest.raises(NotGenuine):
        verifier(name).check(event(name, body=CASES[name].body + b" "))
    with pytest.raises(NotGenuine):
        verifier(name, "b3RoZXI=").check(event(name))
    for header in CASES[name].headers:
        if "delivery" not in header.lower() and "webhook-id" not in header.lower():
            for value in ("", "x", "é" * 9, "v1,"):
                with pytest.raises(NotGenuine):
                    verifier(name).check(event(name, **{header: value}))


@pytest.mark.parametrize("name", TIMED)
def test_a_stale_or_early_one_does_not(name: str) -> None:
    for later_seconds in (-300, 300, 10**6):
        with pytest.raises(NotGenuine, match="too far"):
            verifier(name).check(event(name, later_seconds=later_seconds))


@pytest.mark.parametrize("name", CASES)
def test_without_a_secret_nothing_verifies(name: str) -> None:
    secrets: list[Any] = ["", [], ["", "b3RoZXI="], lambda: None, b"b3RoZXI=", f"{CASES[name].secret}\n"]
    for secret in secrets:
        assert "secret" in verifier(name, secret).fault()
        with pytest.raises(Unverifiable):
            verifier(name, secret).check(event(name))


def test_standard_webhooks_take_the_headers_of_svix_and_a_secret_in_base64() -> None:
    named = {name.replace("webhook", "svix"): value for name, value in SVIX.items()}
    StandardWebhooks(SVIX_SECRET, prefix="svix").check(event("standard", **named))
    assert "base64" in StandardWebhooks("whsec_?").fault()


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, True, "300"], ids=repr)
def test_a_tolerance_is_a_time(seconds: Any) -> None:
    with pytest.raises(ValueError, match="tolerance_seconds must be above 0"):
        Slack("hush", tolerance_seconds=seconds)


def test_we_sign_with_every_secret_as_svix_does() -> None:
    headers = StandardWebhooks([SVIX_SECRET, "b3RoZXI="]).sign(SVIX["webhook-id"], SVIX_BODY, at=1614265330.9)
    documented, other = headers["webhook-signature"].split(" ")
    assert (documented, other[:3], len(other)) == (SVIX["webhook-signature"].split(" ")[-1], "v1,", 47)
    for secret in (SVIX_SECRET, "b3RoZXI="):
        StandardWebhooks(secret).check(event("standard", **headers))


def test_what_we_sign_ourselves_verifies() -> None:
    ours = Hmac(["hush", "b3RoZXI="], header="X-Signature")
    Hmac("hush", header="X-Signature").check(event("untimed", **{"X-Signature": ours.sign(STRIPE_BODY)}))


def test_the_challenge_of_slack_is_answered() -> None:
    body = json.dumps({"type": "url_verification", "challenge": "3eZbrw1a"}).encode()
    assert verifier("slack").greeting(event("slack", body=body)) == "3eZbrw1a"
    assert verifier("slack").greeting(event("slack")) is None


def test_paypals_certificate_is_fetched_from_paypal_alone() -> None:
    fetched: list[str] = []
    scheme = PayPal("WH-ID", fetch=lambda asked: fetched.append(asked) or certificate())
    elsewhere = [("https", "http"), ("paypal.com", "paypal.com.example"), ("https://", "https://example@")]
    addresses = [CERTIFICATE.replace(*each) for each in elsewhere]
    for address in (*addresses, f"{CERTIFICATE}/../../x", f"{CERTIFICATE}\n"):
        with pytest.raises(NotGenuine):
            scheme.check(event("paypal", **{"PAYPAL-CERT-URL": address}))
    assert fetched == []
    for _ in range(2):
        scheme.check(event("paypal"))
    assert fetched == [CERTIFICATE]


def test_a_certificate_that_has_expired_or_cannot_be_fetched() -> None:
    with pytest.raises(NotGenuine, match="expired"):
        PayPal("WH-ID", fetch=lambda _: certificate(until=PAYPAL_TIME - timedelta(days=1))).check(event("paypal"))
    with pytest.raises(Unverifiable, match="ZeroDivisionError"):
        PayPal("WH-ID", fetch=lambda _: 1 / 0).check(event("paypal"))  # type: ignore[arg-type,return-value]
