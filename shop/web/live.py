"""Live updates of an order for its open page: `GET /api/v1/orders/{id}/events`.

A hint on the order's topic follows each commit, and the stream reads the database: a lost hint costs at most
`BEAT_SECONDS`, and without Redis the stream reads that often.

A stream occupies a thread, and threads are few: each ends after `STREAM_SECONDS` (the browser reconnects), and a
process has at most `STREAMS_MAX`, `STREAMS_MAX_A_USER` of one user. One more gets 204, after which a browser does
not reconnect and the page polls. So does each behind ASGI, where Django sends a stream when it has ended.

Source: WHATWG HTML, "Server-sent events" (read 2026-11).
"""

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any
from uuid import UUID

from django.core.handlers.asgi import ASGIRequest
from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from idempotency.locks import LockUnavailable
from idempotency.redis import fastpath
from shop.api import authentication, schema
from shop.api.answers import caller_id
from shop.orders import placing as orders
from shop.orders.changes import topic
from shop.web.orderview import view_of

STREAMS_MAX = 4  # of the eight threads that a process has
STREAMS_MAX_A_USER = 2
STREAM_SECONDS = 60.0
BEAT_SECONDS = 2.0  # also the delay until a reader that went away is noticed
COME_AGAIN_MS = 2000

_taken = Counter[int]()  # by user
_changing = threading.Lock()


class EventStreamRenderer(BaseRenderer):
    """Renderer that lets a caller accept ``text/event-stream``; renders refusals, as JSON."""

    media_type = "text/event-stream"
    format = "events"

    def render(self, data: Any, accepted_media_type: Any = None, renderer_context: Any = None) -> bytes:
        return JSONRenderer().render(data)


class AllTakenError(RuntimeError):
    """A process without a free stream for the user."""


class Stream:
    """A stream's bytes, in one of the process's few places; AllTakenError without one."""

    def __init__(self, *, order_id: UUID, user_id: int, known: str, is_let_in: Callable[[], bool]) -> None:
        with _changing:
            if _taken.total() >= STREAMS_MAX or _taken[user_id] >= STREAMS_MAX_A_USER:
                raise AllTakenError
            _taken[user_id] += 1
        self._user_id = user_id
        self._closed = False
        self._lines = _lines(order_id=order_id, user_id=user_id, known=known, is_let_in=is_let_in)

    def __iter__(self) -> Iterator[bytes]:
        return self._lines

    def close(self) -> None:
        """End the stream; any number of times."""
        self._lines.close()
        with _changing:
            if not self._closed:
                self._closed = True
                _taken.subtract([self._user_id])
                if not _taken[self._user_id]:
                    del _taken[self._user_id]  # or it would hold an entry of every user ever


def _lines(
    *, order_id: UUID, user_id: int, known: str, is_let_in: Callable[[], bool]
) -> Generator[bytes, None, None]:
    ends_at = time.monotonic() + STREAM_SECONDS
    yield f"retry: {COME_AGAIN_MS}\n\n".encode()
    with _listening(order_id) as wait:  # before the first read, so that no change falls between
        while True:
            found = view_of(order_id=order_id, user_id=user_id)
            if found.state != known:
                known = found.state
                yield _event(found)
            if found.final or time.monotonic() >= ends_at:
                return
            if not wait(min(BEAT_SECONDS, max(ends_at - time.monotonic(), 0.0))):
                yield b": still here\n\n"
            if not is_let_in():
                return


def _event(found: Any) -> bytes:
    data = {
        "order": found.order.id.hex,
        "status": found.order.status,
        "version": found.order.version,
        "state": found.state,
        "final": found.final,
    }
    return f"id: {found.state}\nevent: status\ndata: {json.dumps(data)}\n\n".encode()


@contextlib.contextmanager
def _listening(order_id: UUID) -> Iterator[Any]:
    """Yield a function that waits some seconds and returns whether there may be a change."""
    with contextlib.ExitStack() as stack:
        try:
            messages = stack.enter_context(topic(order_id, fastpath.client()).listen())
        except (LockUnavailable, *fastpath.FAILURES):
            yield _wait_without_redis
            return

        def wait(seconds: float) -> bool:
            try:
                messages.take(wait_seconds=seconds)
            except TimeoutError:
                return False
            return True

        yield wait


def _wait_without_redis(seconds: float) -> bool:
    time.sleep(seconds)
    return False


class OrderEvents(APIView):
    renderer_classes = (JSONRenderer, EventStreamRenderer)

    @extend_schema(
        operation_id="orders_events",
        summary="Watch an order",
        description="Server-sent events named `status`, the present one first: `{order, status, version, state, "
        "final}`. `Last-Event-ID` leaves out what is known. The stream ends when the order is final, or after a "
        "minute; come again then. 204: two of yours are open, or every stream is taken; ask for the order itself "
        "instead.",
        parameters=[schema.LAST_EVENT_ID, schema.NO_FORMAT],
        responses={
            (200, "text/event-stream"): OpenApiResponse(schema.EVENT, description="the stream, event by event"),
            **schema.responses({204: None}, {404: "order_not_found"}),
        },
    )
    def get(self, request: Request, order_id: UUID) -> HttpResponseBase:
        user_id = caller_id(request)
        orders.get_order(order_id=order_id, user_id=user_id)  # 404 before a place is taken
        if isinstance(request._request, ASGIRequest):
            return Response(status=204)
        try:
            known, is_let_in = request.headers.get("Last-Event-ID", ""), authentication.let_in_again(request)
            stream = Stream(order_id=order_id, user_id=user_id, known=known, is_let_in=is_let_in)
        except AllTakenError:
            return Response(status=204)
        return _answer(stream)

    def head(self, request: Request, order_id: UUID) -> HttpResponseBase:
        """Answer with the headers alone, without a stream."""
        orders.get_order(order_id=order_id, user_id=caller_id(request))
        return _answer(())


def _answer(events: Iterable[bytes]) -> StreamingHttpResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingHttpResponse(events, content_type="text/event-stream", headers=headers)
