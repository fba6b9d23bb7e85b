"""One-time tokens: keys from the server, for forms and clients that cannot make one.

A token is signed, names its holder and expires; it is stored nowhere before its use. Its use is the ledger's claim
on it, so the unique constraint that makes a key count once makes a token count once, with Redis there or not. The
scope of a token is its holder alone: used for a second, different call it is a reused key.

The tokens of an intent have one effect together, from however many open pages. Its keys are tries, numbered from
0; the next one begins when the last was refused, or answered by the form once more. A token says how many were so
before its page was made: a copy of a later one gets its answer again, and any other call is the next try.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from secrets import token_urlsafe
from typing import Any

from django.core import signing

from idempotency import ledger
from idempotency.conf import config
from idempotency.errors import token_unknown
from idempotency.names import schema
from idempotency.request import keys
from idempotency.request.keys import digest_of, token_scope_of
from idempotency.request.principal import anonymous_like, is_anonymous, principal_of

_OF_INTENT = re.compile(r"(i[0-9a-f]{64}n)([0-9]{1,10})")
SHOWN = "shows_idempotency_token"  # of a request whose page has one
TRIES_MAX = 100  # refused since the page was made, of which a copy gets its answer again


@dataclass(frozen=True, slots=True)
class Token:
    """Token for its holder: `token` to send, `expires_at` (aware) to show."""

    token: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Taken:
    """Genuine token that a request carries.

    Attributes:
        key, scope: of its ledger entry; the scope is that of the holder it was issued to. For an intent, `key` is
            what the keys of its tries begin with.
        expired: its time is over.
        refused: for an intent, the number of tries that were refused before it was issued; else None.
    """

    key: str
    scope: str
    expired: bool
    refused: int | None = None


def issue(principal: str, *, intent: str = "") -> Token:
    """Issue a token to `principal` (see `principal_of`); one query for that of an intent.

    Args:
        principal: who may use it.
        intent: the purpose that its tokens share, which count once together (several open pages of one form);
            empty: it counts alone, as each token of an anonymous caller does.
    """
    word = token_urlsafe(16)
    if intent and not is_anonymous(principal):
        stem, scope = _keys_of(principal, intent), token_scope_of(principal=principal)
        tries = ledger.numbered(scope=scope, stem=stem) if config().enabled else []
        word = f"{stem}{_open_number(tries)}"
    return Token(_signer(principal).sign(word), datetime.now(UTC) + timedelta(seconds=config().token_seconds))


def issue_for_page(request: Any, *, intent: str = "") -> str:
    """Issue the token of a form on this request's page, which may show a try's form again.

    The page is kept from caches, also by the middleware: another visitor's order would be answered by this one's.
    """
    principal = principal_of(request)
    plain = getattr(request, "_request", request)  # of REST framework
    setattr(plain, SHOWN, True)
    plain._cache_update_cache = False  # how Django's cache_page and UpdateCacheMiddleware know what to store
    call = getattr(request, "idempotency", None)
    if intent and call is not None:
        call.offer_again(_keys_of(principal, intent))
    return issue(principal, intent=intent).token


def read(token: str, *, principal: str) -> Taken | None:
    """Read the ledger key of a token; None for one of another principal, unless anonymous.

    A token that was issued to an anonymous caller is good for anyone who holds it: the page with the form may have
    been opened before its guest had a session, or logged in.
    """
    for holder in (principal, anonymous_like(principal)):
        signer, scope = _signer(holder), token_scope_of(principal=holder)
        try:
            return _taken(signer.unsign(token, max_age=config().token_seconds), scope, expired=False)
        except signing.SignatureExpired:
            return _taken(signer.unsign(token), scope, expired=True)
        except signing.BadSignature:
            continue
    return None


def key_of_try(taken: Taken, content: bytes) -> str:
    """Return the key of a call by the token of an intent: one query.

    Args:
        content: the request, see `keys.canonical`.

    Raises:
        Problem: `token_unknown`, for an expired token whose call would be a new try.
    """
    seen = taken.refused or 0
    tries = ledger.numbered(scope=taken.scope, stem=taken.key, first=seen, limit=TRIES_MAX)
    current = keys.fingerprint(content)
    copied = (each.number for each in tries if keys.matches(each.fingerprint, current, content))
    number = next(copied, _open_number(tries, seen=seen))
    if taken.expired and all(each.number != number for each in tries):
        raise token_unknown()
    return ledger.numbered_key(taken.key, number)


def _taken(word: str, scope: str, *, expired: bool) -> Taken:
    of_intent = _OF_INTENT.fullmatch(word)
    if of_intent is None:
        return Taken(word, scope, expired)
    return Taken(of_intent[1], scope, expired, refused=int(of_intent[2]))


def _keys_of(principal: str, intent: str) -> str:
    """Return the prefix of an intent's keys. Unkeyed: it survives a new `SECRET_KEY`."""
    return f"i{digest_of(scope=principal, key=intent)}n"


def _open_number(tries: Sequence[ledger.Numbered], *, seen: int = 0) -> int:
    """Number the try that counts: the last of `tries`, or the one after a refused one."""
    return tries[0].number + tries[0].is_open if tries else seen


def _signer(principal: str) -> signing.TimestampSigner:
    tenant = schema()  # two tenants may each have a caller of this name
    holder = f"{tenant}/{principal}" if tenant else principal
    return signing.TimestampSigner(salt=f"idempotency.token.{holder}")
