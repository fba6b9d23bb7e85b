"""Intake: a sender's request is verified, stored, and applied or left to a worker.

Verified before it is stored: a stranger's request must neither fill the table nor take a genuine event's id.
"""

import json
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.contrib.auth.decorators import login_not_required
from django.db.transaction import non_atomic_requests
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.datastructures import CaseInsensitiveMapping
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from idempotency import arguments
from idempotency.conf.readers import is_names
from idempotency.errors import Problem, malformed, payload_too_large, problem_response
from idempotency.models import EventStatus, WebhookEvent
from idempotency.observability import metrics
from idempotency.postgres import home
from idempotency.protocol.misuse import mark_not_keyed
from idempotency.protocol.problems import problem_of
from idempotency.request.keys import content_length
from idempotency.response.redaction import reason_of
from idempotency.webhooks import queries
from idempotency.webhooks.applying import BUSY, DUPLICATE, apply, declared
from idempotency.webhooks.event import Event, NotGenuine, Unverifiable, place_of
from idempotency.webhooks.verifiers import Verifier

log = logging.getLogger("idempotency")

T = TypeVar("T")
View = TypeVar("View", bound=Callable[..., HttpResponse])
Handler = Callable[[Event], object]

# errors of a function that reads a request which is not as it expects
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, RecursionError)

NAME_MAX = 255  # characters of an id or an entity, as their columns have


def door(*, using: str) -> Callable[[View], View]:
    """Make a view that senders reach by POST, without login, CSRF token and key of ours.

    Args:
        using: alias of the database that the view commits in by itself.
    """

    def opened(view: View) -> View:
        mark_not_keyed(view)
        return csrf_exempt(non_atomic_requests(using=using)(login_not_required(require_POST(view))))

    return opened


class webhook:  # noqa: N801  a verb where it is used, as `once`
    """Decorator that stores an event and applies it once by a function of an `Event`.

    It makes a view. The function's writes and the row's `applied_at` are one transaction. If it raises, the sender
    is answered 500 and sends again; the last of `attempts_max` failures is acknowledged, and a person decides.

    Args:
        sender: its name, 1..96 characters; each has one function, and is never changed.
        verify: how it signs.
        id: header or function with the sender's id, the same in every copy; None: where the scheme has it.
        entity: what the event is about, any value with a text; only with `sequence`.
        sequence: number of the event for its entity, from 1 without gaps; early ones are held, and late ones for a
            person.
        headers: more headers to store, for the function.
        defer: only store it; `apply_stored_events` applies it.
        attempts_max: failures after which it is quarantined.
        max_bytes: longest body.

    Raises:
        TypeError: a coroutine function, no `Verifier`, no id, or only one of `entity` and `sequence`.
        ValueError: the sender's name or a number is out of range, or another function has the name.
    """

    handler: Handler

    def __init__(
        self,
        sender: str,
        *,
        verify: Verifier,
        id: str | Callable[[Event], str | int] | None = None,  # noqa: A002  the word of every sender
        entity: Callable[[Event], object] | None = None,
        sequence: Callable[[Event], int] | None = None,
        headers: Sequence[str] = (),
        defer: bool = False,
        attempts_max: int = 8,
        max_bytes: int = 1_048_576,
    ) -> None:
        if fault := _fault_of(verify, id=id, entity=entity, sequence=sequence, headers=headers):
            raise TypeError(f"@webhook({sender!r}){fault}.")
        self.sender, self.verify, self._defer = arguments.name("sender", sender), verify, defer
        self.attempts_max = arguments.whole_number("attempts_max", attempts_max)
        self._max_bytes = arguments.whole_number("max_bytes", max_bytes)
        self._id, self._entity, self._sequence = id or verify.id_of, entity, sequence
        named = (id,) if isinstance(id, str) else ()
        self._headers = dict.fromkeys((*verify.headers, *named, *headers, "Content-Type"))

    def __call__(self, handler: Handler) -> Callable[..., HttpResponse]:
        if iscoroutinefunction(handler):
            raise TypeError(f"@webhook({self.sender!r}) is on a coroutine function. Write `def`.")
        other = declared.get(self.sender)
        if other and place_of(other.handler) != place_of(handler):
            place = place_of(other.handler)
            raise ValueError(f"@webhook({self.sender!r}) is on {place} too. Give each its own sender.")
        self.handler = handler
        declared[self.sender] = self

        @wraps(handler)
        def view(request: HttpRequest) -> HttpResponse:
            return self._answer(request)

        marked: Any = view
        marked.webhook = self
        return door(using=home.alias())(view)

    def _answer(self, request: HttpRequest) -> HttpResponse:
        try:
            event = self._verified(request)
            if (greeting := self._read(self.verify.greeting, event)) is not None:
                return HttpResponse(greeting, content_type="text/plain")
            result = self._take_in(event)
            if result == EventStatus.FAILED:
                raise Problem(500, "webhook_failed", "The event is stored, and was not applied. Send it again.")
            if result == BUSY:
                raise _not_now()
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                raise
            response = problem_response(problem, request)
            # else Django writes a line for each forgery
            response._has_been_logged = True  # type: ignore[attr-defined]
            return response
        return JsonResponse({"status": result})

    def _verified(self, request: HttpRequest) -> Event:
        """Read the request, and require that its sender signed it. Raises Problem."""
        event = Event(
            sender=self.sender,
            id="",
            headers=CaseInsensitiveMapping({name: request.headers.get(name, "") for name in self._headers}),
            body=self._body(request),
            received_at=datetime.now(UTC),
        )
        try:
            self.verify.check(event)
        except NotGenuine as error:
            raise self._refused(Problem(400, "signature_invalid", f"Not genuine: {error}.")) from error
        except Unverifiable as error:
            log.error("Webhook requests of %s cannot be verified: %s", self.sender, error)
            raise self._refused(_not_now()) from error
        except UNREADABLE as error:
            what = f"{place_of(type(self.verify))}.check raised {reason_of(error)}"
            log.warning("A webhook request of %s is refused: %s. Raise NotGenuine there.", self.sender, what)
            raise self._refused(Problem(400, "signature_invalid", "Not genuine: it cannot be read.")) from error
        return event

    def _body(self, request: HttpRequest) -> bytes:
        wanted = content_length(request)
        if wanted > self._max_bytes:
            raise self._refused(payload_too_large())
        # Django takes a chunked body for empty; a server that ends the stream with the body says so
        is_chunked = not request.META.get("CONTENT_LENGTH") and request.META.get("wsgi.input_terminated")
        try:
            body: bytes = (request.META["wsgi.input"] if is_chunked else request).read(self._max_bytes + 1)
        except OSError as error:  # the sender has gone
            raise self._refused(malformed()) from error
        if len(body) > self._max_bytes:
            raise self._refused(payload_too_large())
        if len(body) < wanted:  # the sender has gone too: servers of WSGI give what had come
            raise self._refused(malformed())
        return body

    def _take_in(self, event: Event) -> str:
        """Store the event unless a copy is, and apply it unless a worker does."""
        number, entity, sequence = self._read(self._names, event)
        headers = json.dumps({name: value for name, value in event.headers.items() if value})
        home.refuse_open_transaction()  # what is acknowledged is committed
        values = [self.sender, number, entity, sequence, headers, event.body, event.received_at]
        is_new = home.row(queries.STORE, values) is not None
        if self._defer:
            result = EventStatus.STORED if is_new else DUPLICATE
            metrics.webhooks.labels(self.sender, result).inc()
            return result
        rows = WebhookEvent.objects.using(home.alias()).defer("body")
        return apply(self, rows.get(sender=self.sender, event_id=number))[0]

    def _names(self, event: Event) -> tuple[str, str, int | None]:
        number = event.header(self._id) if isinstance(self._id, str) else self._id(event)
        name = _name(number, of=f"id={self._id if isinstance(self._id, str) else place_of(self._id)}")
        if self._entity is None or self._sequence is None:
            return name, "", None
        entity, of = self._entity(event), f"entity={place_of(self._entity)}"
        text = _name(None if entity is None else str(entity), of=of)
        return name, text, _number(self._sequence(event), of=f"sequence={place_of(self._sequence)}")

    def _read(self, read: Callable[[Event], T], event: Event) -> T:
        """Read something of a genuine event. Raises Problem if it has no such thing."""
        try:
            return read(event)
        except UNREADABLE as error:
            log.warning(
                "A request of %s is genuine, and has no readable id, entity or sequence: %s",
                self.sender,
                reason_of(error),
            )
            raise self._refused(malformed()) from error

    def _refused(self, problem: Problem) -> Problem:
        """Count a request of which nothing is stored, and log the reason."""
        metrics.webhooks.labels(self.sender, problem.code).inc()
        log.info("A webhook request of %s is refused: %s", self.sender, problem)
        return problem


def _fault_of(verify: object, *, id: Any, entity: Any, sequence: Any, headers: Any) -> str:  # noqa: A002
    if not isinstance(verify, Verifier):
        return " needs a Verifier. Write verify=GitHub(secret), or derive a class"
    if (entity is None) is not (sequence is None):
        return " needs entity= and sequence= together, or neither"
    for name, given in {"entity": entity, "sequence": sequence}.items():
        if given is not None and not arguments.is_function(given):
            return f": {name}= is a function of the event, not {given!r}"
    if not (id is None or isinstance(id, str) or arguments.is_function(id)):
        return f": id= is a header or a function of the event, not {id!r}"
    if id is None and type(verify).id_of is Verifier.id_of and not (verify.id_header or verify.id_member):
        return f": {type(verify).__name__} names no id. Write id="
    return "" if is_names(headers) else f": headers= is a list of names, not {headers!r}"


def _not_now() -> Problem:
    return Problem(
        503, "service_unavailable", "This cannot be taken in now. Send it again.", headers={"Retry-After": "60"}
    )


def _name(given: object, *, of: str) -> str:
    text = str(given) if isinstance(given, int | str) and not isinstance(given, bool) else ""
    if not 1 <= len(text) <= NAME_MAX or not text.isprintable():
        raise ValueError(f"{of} returned a {type(given).__name__}, not 1 to 255 printable characters")
    return text


def _number(value: object, *, of: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= arguments.BIGINT_MAX:
        raise ValueError(f"{of} returned a {type(value).__name__}, not a whole number from 1")
    return value
