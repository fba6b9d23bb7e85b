"""Problems of RFC 9457 with a stable `code`: those of docs/contract.md, 1, and

- 409 `operation_abandoned`: an operator closed the call as not done; a new intent needs a new key.
- 503 `service_unavailable`: the database is away, or this process lacks the key that a stored answer is encrypted
  under. It has Retry-After, and the same idempotency key does it once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, ProgrammingError
from django.http import JsonResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from idempotency.conf import config

PROBLEM_JSON = "application/problem+json"
URN = "urn:payonce:problem:"
DRAFT = "https://www.ietf.org/archive/id/draft-ietf-httpapi-idempotency-key-header-07.html#section-2"
HTTP = "https://www.rfc-editor.org/rfc/rfc9110.html#section-"
# pages of the key's problems whose code does not begin with `idempotency_`
PAGES = {
    "token_unknown": DRAFT,
    "operation_abandoned": DRAFT,
    "not_authenticated": f"{HTTP}15.5.4",
    "service_unavailable": f"{HTTP}15.6.4",
}
UNDEFINED_TABLE, TABLES = "42P01", "idempotency_"  # of PostgreSQL, and the prefix of our tables


class Problem(Exception):
    """Answer of status 400 or above, raised instead of returned.

    Args:
        status: HTTP status.
        code: stable machine-readable word, snake_case.
        detail: a sentence for the caller: what is wrong with this request and what to do about it. The document
            has it in the active language, if it is in a catalogue.
        title: a sentence for this kind of problem; the phrase of the status if None.
        headers: headers of the answer, such as ``Retry-After`` or ``Location``.
        extra: further members of the problem document.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        title: str | None = None,
        headers: dict[str, str] | None = None,
        **extra: Any,
    ) -> None:
        # `args` stay those of the constructor: a result store in JSON makes the error again from them
        self.status = status
        self.code = code
        self.detail = detail
        self.title = title or HTTPStatus(status).phrase
        self.headers = headers or {}
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.detail}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it for the result store of a task queue."""
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(kind: type[Problem], args: tuple[Any, ...]) -> Problem:
    return kind.__new__(kind, *args)


def type_of(code: str) -> str:
    """Return a problem's type: ``IDEMPOTENCY["PROBLEM_TYPE_BASE"]`` and its code, else a URN.

    No address is the default: only the project knows its page of problems.
    """
    return f"{config().problem_type_base or URN}{code}"


def link_of(problem: Problem) -> dict[str, str]:
    """Build the `Link` to the page of the problem's type, or to the standard for the key's own.

    Source: draft-ietf-httpapi-idempotency-key-header-07, sections 2.3 and 2.7, RFC 8288 (October 2017) and
        RFC 9110 (June 2022).
    """
    target = type_of(problem.code)
    if target.startswith(URN):
        target = DRAFT if problem.code.startswith("idempotency_") else PAGES.get(problem.code, "")
    return {"Link": f'<{target}>; rel="describedby"; type="text/html"'} if target else {}


def problem_document(problem: Problem, *, request_id: str | None = None) -> dict[str, Any]:
    """List the members of the problem in the order of RFC 9457, with `code` and `request_id`."""
    document: dict[str, Any] = {
        "type": type_of(problem.code),
        "title": problem.title,
        "status": problem.status,
        "detail": gettext(problem.detail),
        "code": problem.code,
        **problem.extra,
    }
    if request_id:
        document["request_id"] = request_id
    return document


def problem_response(problem: Problem, request: Any) -> JsonResponse:
    """Answer a request (Django's, DRF's or None) with a document of RFC 9457 (July 2023)."""
    return JsonResponse(
        problem_document(problem, request_id=getattr(request, "request_id", None)),
        status=problem.status,
        headers={**link_of(problem), **problem.headers},
        content_type=PROBLEM_JSON,
        json_dumps_params={"ensure_ascii": False},
    )


def key_missing(header: str = "Idempotency-Key") -> Problem:
    return Problem(
        400,
        "idempotency_key_missing",
        gettext(
            "This call changes something and needs an %(header)s header; send a fresh random key per intent "
            "and the same key with every retry of it."
        )
        % {"header": header},
    )


def key_invalid(reason: str, header: str = "Idempotency-Key") -> Problem:
    detail = gettext("The %(header)s header is not usable: %(reason)s.") % {"header": header, "reason": reason}
    return Problem(400, "idempotency_key_invalid", detail)


def key_weak() -> Problem:
    return Problem(
        400,
        "idempotency_key_weak",
        _(
            "Nothing identifies the caller of this request, so its Idempotency-Key must be hard to guess: a "
            "random UUID, or at least 22 random characters of base64, or 31 of hexadecimal digits."
        ),
    )


class AnonymousRefused(Problem):
    """Refusal of a keyed call without a known caller, where ``ANONYMOUS`` is ``"refuse"``.

    403 and not 401, which needs a `WWW-Authenticate` (RFC 9110, section 15.5.2) that a plain view does not have.
    """

    def __init__(self) -> None:
        super().__init__(
            403, "not_authenticated", _("This call needs an identified caller. Log in, and send it again.")
        )


class KeyReused(Problem):
    """Problem of a key of a call with another content; `location` of what that call made."""

    def __init__(self, location: str | None = None) -> None:
        super().__init__(
            422,
            "idempotency_key_reused",
            _("This idempotency key was used before with other content. Use a new key for a new intent."),
            headers={"Location": location} if location else None,
        )


class InProgress(Problem):
    """Problem of a key whose first call is still running: call again later, with the same key."""

    def __init__(self, retry_after_seconds: int = 1) -> None:
        super().__init__(
            409,
            "idempotency_in_progress",
            _("The first call with this idempotency key is still running. Retry with the same key."),
            headers={"Retry-After": str(retry_after_seconds)},
        )


class ResultExpired(Problem):
    """Problem of a completed call whose stored result is gone; it never runs again."""

    def __init__(self, location: str | None = None) -> None:
        super().__init__(
            410,
            "idempotency_result_expired",
            _("This request was completed before and its stored answer is gone; it will not run again."),
            headers={"Location": location} if location else None,
        )


@contextmanager
def explaining_missing_tables() -> Iterator[None]:
    """Say what to run, in a block that asks a ledger which was never migrated."""
    try:
        yield
    except ProgrammingError as error:
        raise_if_not_migrated(error)
        raise


def raise_if_not_migrated(error: Exception) -> None:
    """Raise a sentence in place of PostgreSQL's error about a missing table of ours."""
    is_missing = getattr(error.__cause__, "sqlstate", None) == UNDEFINED_TABLE
    if is_missing and f'"{TABLES}' in str(error):
        alias = config().database
        option = "" if alias == DEFAULT_DB_ALIAS else f" --database {alias}"
        raise ImproperlyConfigured(
            f"The database {alias!r} has no tables of the ledger: run `manage.py migrate idempotency{option}`."
            f" ({error})"
        ) from error


def token_unknown() -> Problem:
    return Problem(
        409,
        "token_unknown",
        _("This one-time token was never issued to you or has expired unused. Ask for a new one."),
    )


def service_unavailable() -> Problem:
    return Problem(
        503,
        "service_unavailable",
        _("The database did not answer. Retry with the same key: it is done once."),
        headers={"Retry-After": "1"},
    )


def answer_sealed() -> Problem:
    return Problem(
        503,
        "service_unavailable",
        _(
            "This request was completed before; its stored answer cannot be opened here now. "
            "Retry with the same key."
        ),
        headers={"Retry-After": "5"},
    )


def malformed() -> Problem:
    detail = _("The request cannot be read: check its Host, its Content-Type and its body.")
    return Problem(400, "malformed", detail)


def length_missing() -> Problem:
    return Problem(411, "malformed", _("The body came without a length. Send its Content-Length."))


def payload_too_large() -> Problem:
    return Problem(413, "payload_too_large", _("The request body is larger than this service accepts."))
