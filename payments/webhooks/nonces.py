"""Nonces of handled notifications, by which a metric counts the very bytes sent again."""

import contextvars
import hashlib
import logging
from functools import partial

from prometheus_client import Counter

from idempotency.locks import ExpiringSet
from payments.channels.sharing import shared

log = logging.getLogger(__name__)

# a genuine time stamp may be 300 s ahead, and is good until it is 300 s old
TTL_SECONDS = 600.0

REPLAYED = Counter(
    "payonce_notifications_replayed",
    "Genuine notifications whose very bytes and signature had been handled before.",
    ["channel"],
)


def remember(account: str, *, headers: dict[str, str], body: bytes) -> None:
    """Remember a handled notification, not awaiting Redis' reply, and count a known one."""
    signed = "\n".join(f"{name}: {value}" for name, value in sorted(headers.items())).encode()
    member = hashlib.sha256(signed + b"\n" + body).hexdigest()
    this_request = contextvars.copy_context()  # the reply may be read in another one, the log line belongs here

    def replayed() -> None:
        REPLAYED.labels(account).inc()
        log.info("a %s notification arrived again byte for byte, not signed again", account)

    def note(redis: object) -> None:
        nonces = ExpiringSet(f"{account}-nonce", ttl_seconds=TTL_SECONDS, client=redis)
        nonces.note(member, known=partial(this_request.run, replayed))

    shared("notification nonces", note, otherwise=None)
