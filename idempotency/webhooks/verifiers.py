"""Verifiers: senders' signatures by shared secret, compared in constant time."""

import base64
import hmac
from collections.abc import Callable, Iterable, Sequence

from idempotency.arguments import bounded
from idempotency.webhooks.event import Event, NotGenuine, Unverifiable, place_of

TOLERANCE_SECONDS = 300.0

Secret = str | Sequence[str] | Callable[[], str | Sequence[str]]


def must_be_fresh(timestamp: str, *, now: float, tolerance_seconds: float = TOLERANCE_SECONDS) -> None:
    """Require a time, in epoch seconds, within the tolerance of `now`. Raises NotGenuine."""
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise NotGenuine("no time is signed")
    # in whole seconds: a part of one makes 300 ahead no less
    if abs(int(now) - int(timestamp)) >= tolerance_seconds:
        raise NotGenuine("the signed time is too far from ours")


class Verifier:
    """Scheme by which a sender signs. Subclass it with `headers`, `check` and an id.

    Args:
        secret: shared with the sender; a list while it is rotated, of which any may have signed; a function that
            returns either is called for each request.
        tolerance_seconds: greatest distance of the signed time from ours, where the scheme has one.

    Attributes:
        headers: what it reads; these alone are stored.
        id_header: header with the sender's id of an event; or
        id_member: the JSON member with it.
    """

    headers: tuple[str, ...] = ()
    id_header = ""
    id_member = ""

    def __init__(self, secret: Secret, *, tolerance_seconds: float = TOLERANCE_SECONDS) -> None:
        self._secret = secret
        self._tolerance_seconds = bounded("tolerance_seconds", tolerance_seconds)

    def check(self, event: Event) -> None:
        """Verify the request. Raises NotGenuine, or Unverifiable."""
        raise NotImplementedError

    def id_of(self, event: Event) -> str:
        """Read a verified event's id. Raises LookupError, TypeError or ValueError without one."""
        number: str = event.header(self.id_header) if self.id_header else event.json[self.id_member]
        return number

    def greeting(self, event: Event) -> str | None:
        """Answer a verified request that only asks whether the endpoint is there."""
        return None

    def secrets(self) -> list[str]:
        """List the secrets; raises Unverifiable without one."""
        given = self._secret
        if callable(given):
            try:
                given = given()
            except Exception as error:
                why = f"{place_of(given)}, which returns its secret, raised {type(error).__name__}"
                raise Unverifiable(why) from error
        found = [given] if isinstance(given, str) else list(given or ())
        if not found or not all(isinstance(one, str) and one and one == one.strip() for one in found):
            raise Unverifiable("it has no secret, or one that is no text, empty, or ends with white space")
        return found

    def key_of(self, secret: str) -> bytes:
        """Return the bytes that a secret signs with."""
        return secret.encode()

    def fault(self) -> str:
        """Describe what is wrong with the secrets; empty if nothing is."""
        try:
            for secret in self.secrets():
                self.key_of(secret)
        except Unverifiable as error:
            return str(error)
        return ""

    def must_be_fresh(self, timestamp: str, event: Event) -> None:
        """Require a time near the arrival, as the function of this name. Raises NotGenuine."""
        arrived = event.received_at.timestamp()
        must_be_fresh(timestamp, now=arrived, tolerance_seconds=self._tolerance_seconds)

    def digests(self, signed: bytes) -> list[bytes]:
        """Return the HMAC-SHA-256 under each secret. Raises Unverifiable."""
        return [hmac.digest(self.key_of(secret), signed, "sha256") for secret in self.secrets()]

    def must_be_signed(self, signed: bytes, given: Iterable[str], encode: Callable[[bytes], str]) -> None:
        """Require one of `given` to be the HMAC-SHA-256 under one of our secrets, or NotGenuine."""
        ours = [encode(digest).encode() for digest in self.digests(signed)]
        theirs = [one.encode(errors="replace") for one in given]
        if not any([hmac.compare_digest(one, other) for one in ours for other in theirs]):  # noqa: C419  all of them
            raise NotGenuine("the signature does not verify")


class Hmac(Verifier):
    """HMAC-SHA-256 in lower-case hexadecimal of the body, or of a time, a dot and the body.

    Args:
        header: with the signature.
        time_header: with the time, in seconds since the epoch; empty where none is signed.
    """

    id_member = "id"

    def __init__(
        self, secret: Secret, *, header: str, time_header: str = "", tolerance_seconds: float = TOLERANCE_SECONDS
    ) -> None:
        super().__init__(secret, tolerance_seconds=tolerance_seconds)
        self._header, self._time_header = header, time_header
        self.headers = (header, time_header) if time_header else (header,)

    def check(self, event: Event) -> None:
        signed = event.body
        if self._time_header:
            timestamp = event.header(self._time_header)
            self.must_be_fresh(timestamp, event)
            signed = f"{timestamp}.".encode() + signed
        self.must_be_signed(signed, [event.header(self._header)], bytes.hex)

    def sign(self, text: bytes) -> str:
        """Sign what we send, with the first secret."""
        return self.digests(text)[0].hex()


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


class StandardWebhooks(Verifier):
    """Standard Webhooks, symmetric (``v1``); `prefix`, such as ``svix``, begins the headers.

    Source: Standard Webhooks specification 1.0.0, "Signature scheme" (read 2026-11).
    """

    def __init__(
        self, secret: Secret, *, tolerance_seconds: float = TOLERANCE_SECONDS, prefix: str = "webhook"
    ) -> None:
        super().__init__(secret, tolerance_seconds=tolerance_seconds)
        self.headers = (f"{prefix}-id", f"{prefix}-timestamp", f"{prefix}-signature")
        self.id_header = f"{prefix}-id"

    def key_of(self, secret: str) -> bytes:
        try:
            key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except ValueError:
            key = b""
        if not key:
            raise Unverifiable("its secret is not whsec_ with base64 after it")
        return key

    def check(self, event: Event) -> None:
        number, timestamp, signatures = (event.header(name) for name in self.headers)
        self.must_be_fresh(timestamp, event)
        signed = f"{number}.{timestamp}.".encode() + event.body
        given = [one.removeprefix("v1,") for one in signatures.split(" ") if one.startswith("v1,")]
        self.must_be_signed(signed, given, _base64)

    def sign(self, number: str, body: bytes, *, at: float) -> dict[str, str]:
        """Return the headers of a message sent `at` that Unix time, signed with every secret.

        Raises:
            Unverifiable: there is none.
        """
        timestamp = str(int(at))
        digests = self.digests(f"{number}.{timestamp}.".encode() + body)
        signatures = " ".join(f"v1,{_base64(digest)}" for digest in digests)
        return dict(zip(self.headers, (number, timestamp, signatures), strict=True))


class Stripe(Verifier):
    """Stripe's events.

    Source: Stripe, "Receive Stripe events in your webhook endpoint", verify manually (read 2026-11).
    """

    headers = ("Stripe-Signature",)
    id_member = "id"

    def check(self, event: Event) -> None:
        parts = [item.strip().partition("=") for item in event.header("Stripe-Signature").split(",")]
        timestamp = next((value for name, _, value in parts if name == "t"), "")
        self.must_be_fresh(timestamp, event)
        given = [value for name, _, value in parts if name == "v1"]
        self.must_be_signed(timestamp.encode() + b"." + event.body, given, bytes.hex)


class GitHub(Verifier):
    """GitHub's deliveries. Neither a time nor the delivery's id is signed.

    Source: GitHub, "Validating webhook deliveries" (read 2026-11).
    """

    headers = ("X-Hub-Signature-256", "X-GitHub-Delivery", "X-GitHub-Event")
    id_header = "X-GitHub-Delivery"

    def check(self, event: Event) -> None:
        given = [event.header("X-Hub-Signature-256")]
        self.must_be_signed(event.body, given, lambda digest: f"sha256={digest.hex()}")


class Shopify(Verifier):
    """Shopify's deliveries. Neither a time nor the delivery's id is signed.

    Source: Shopify, "Verify webhook deliveries" (read 2026-11).
    """

    headers = ("X-Shopify-Hmac-Sha256", "X-Shopify-Webhook-Id", "X-Shopify-Topic", "X-Shopify-Shop-Domain")
    id_header = "X-Shopify-Webhook-Id"

    def check(self, event: Event) -> None:
        self.must_be_signed(event.body, [event.header("X-Shopify-Hmac-Sha256")], _base64)


class Slack(Verifier):
    """Slack's Events API. Answers its challenge; commands and actions need ``id=``.

    Source: Slack, "Verifying requests from Slack" and "url_verification event" (read 2026-11).
    """

    headers = ("X-Slack-Signature", "X-Slack-Request-Timestamp")
    id_member = "event_id"

    def check(self, event: Event) -> None:
        timestamp = event.header("X-Slack-Request-Timestamp")
        self.must_be_fresh(timestamp, event)
        signed = f"v0:{timestamp}:".encode() + event.body
        self.must_be_signed(signed, [event.header("X-Slack-Signature")], lambda digest: f"v0={digest.hex()}")

    def greeting(self, event: Event) -> str | None:
        if not event.body.startswith(b"{") or event.json.get("type") != "url_verification":
            return None
        return str(event.json["challenge"])
