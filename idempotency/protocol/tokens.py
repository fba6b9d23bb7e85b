"""One-time tokens: keys that the server hands out, for forms and for clients that cannot make one.

A token is signed, names its holder and expires; it is stored nowhere before its use. Its use is the ledger's claim
on it, so the unique constraint that makes a key count once makes a token count once, with Redis there or not. The
scope of a token is its holder alone: used for a second, different call it is a reused key.
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
from idempotency.request.principal import anonymous_like, is_anonymous


@dataclass(frozen=True, slots=True)
class Token:
    """Token for its holder: `token` to send, `expires_at` (aware) to show."""

    token: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Taken:
    """Genuine token that a request carries.

    Attributes:
        key, scope: of its ledger entry; the scope is that of the holder it was issued to.
        expired: its time is over.
    """

    key: str
    scope: str
    expired: bool


def issue(principal: str, *, intent: str = "") -> Token:
    """Issue a token to `principal` (see `principal_of`); asks neither database nor Redis.

    Args:
        principal: who may use it.
        intent: the purpose that its tokens share, where they count once together (several open pages of one form);
            empty: it counts alone, as each token of an anonymous caller does.
    """
    signer = _signer(principal)
    word = _word_of(f"{principal} {intent}") if intent and not is_anonymous(principal) else token_urlsafe(16)
    return Token(signer.sign(word), datetime.now(UTC) + timedelta(seconds=config().token_seconds))


def is_used(token: Token, *, principal: str) -> bool:
    """Check if it has counted, or another token of its intent: one query."""
    taken = read(token.token, principal=principal)
    return find(scope=taken.scope, key=taken.key) is not None


def read(token: str, *, principal: str) -> Taken:
    """Read the ledger key of a token.

    A token that was issued to an anonymous caller is good for anyone who holds it: the page with the form may have
    been opened before its guest had a session, or logged in.

    Raises:
        Problem: `token_unknown`, for anything issued neither to this principal nor to an anonymous caller.
    """
    for holder in (principal, anonymous_like(principal)):
        signer, scope = _signer(holder), token_scope_of(principal=holder)
        try:
            return Taken(signer.unsign(token, max_age=config().token_seconds), scope, expired=False)
        except signing.SignatureExpired:
            return Taken(signer.unsign(token), scope, expired=True)
        except signing.BadSignature:
            continue
    raise token_unknown()


def issued_here(key: str, *, principal: str) -> Taken | None:
    """Read an `Idempotency-Key` that is a token; None for a key of the caller's own making."""
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
