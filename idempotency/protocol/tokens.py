"""One-time tokens: a key that the server hands out, for forms and for clients that cannot make one.

A token is signed, names its holder and expires; it is stored nowhere before its use. Its use is the ledger's
claim on it, so the same unique constraint that makes a key count once makes a token count once, with Redis there
or not. The scope of a token is its holder alone: used for a second, different call it is a reused key.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from secrets import token_urlsafe

from django.core import signing
from django.utils.crypto import salted_hmac

from idempotency.conf import config
from idempotency.errors import Problem, token_unknown
from idempotency.ledger import find
from idempotency.names import schema
from idempotency.request.keys import token_scope_of
from idempotency.request.principal import ANONYMOUS

_SEPARATOR, _SEPARATORS = ":", 2  # of Django's signer: value, time and signature


@dataclass(frozen=True, slots=True)
class Token:
    """What the holder gets: `token` to send, `expires_at` (aware) to show."""

    token: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Taken:
    """A genuine token.

    Attributes:
        key: of the ledger.
        scope: of the ledger; of the holder it was issued to.
        expired: its time is over.
    """

    key: str
    scope: str
    expired: bool


def issue(principal: str, *, intent: str = "") -> Token:
    """A token for `principal` (see `principal_of`); no database, no Redis.

    Args:
        principal: who may use it.
        intent: what it is meant for, where all tokens for the same shall count once together, as those of several
            open pages; empty: a new one that counts alone, as each of an anonymous caller's does.
    """
    signer = _signer(principal)
    word = _word_of(f"{principal} {intent}") if intent and principal != ANONYMOUS else token_urlsafe(16)
    return Token(signer.sign(word), datetime.now(UTC) + timedelta(seconds=config().token_seconds))


def is_used(token: Token, *, principal: str) -> bool:
    """Whether it has counted, or another one of its intent: one query."""
    taken = read(token.token, principal=principal)
    return find(scope=taken.scope, key=taken.key) is not None


def read(token: str, *, principal: str) -> Taken:
    """The ledger key of a token.

    One that was issued to an anonymous caller is good for whoever holds it: the page with the form may have been
    opened before its guest had a session, or logged in.

    Raises:
        Problem: `token_unknown`, for anything issued neither to this principal nor to an anonymous caller.
    """
    for holder in (principal, ANONYMOUS):
        signer, scope = _signer(holder), token_scope_of(principal=holder)
        try:
            return Taken(signer.unsign(token, max_age=config().token_seconds), scope, expired=False)
        except signing.SignatureExpired:
            return Taken(signer.unsign(token), scope, expired=True)
        except signing.BadSignature:
            continue
    raise token_unknown()


def issued_here(key: str, *, principal: str) -> Taken | None:
    """The token that an `Idempotency-Key` is; None for a key of the caller's own making."""
    if key.count(_SEPARATOR) != _SEPARATORS:
        return None
    try:
        return read(key, principal=principal)
    except Problem:
        return None


def _word_of(what: str) -> str:
    return salted_hmac("idempotency.intent", what, algorithm="sha256").hexdigest()


def _signer(principal: str) -> signing.TimestampSigner:
    tenant = schema()  # two tenants may each have a caller of this name
    holder = f"{tenant}/{principal}" if tenant else principal
    return signing.TimestampSigner(salt=f"idempotency.token.{holder}")
