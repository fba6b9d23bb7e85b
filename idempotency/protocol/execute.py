"""The protocol of a keyed call, from claim to answer.

Every door (plain Django, async, REST framework, Ninja, the middleware) maps HTTP to `Policy.open` and a handler,
and runs `execute` or `execute_async`. Both drive the same `_steps`; the two modes are strategies of it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager, suppress
from typing import Any

from asgiref.sync import AsyncToSync, SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from idempotency.errors import Problem
from idempotency.observability import logs
from idempotency.protocol.exchange import Exchange
from idempotency.response.answers import REPLAYED_HEADER, rendered

log = logging.getLogger("idempotency")

Handler = Callable[[], HttpResponseBase]
Begin = Callable[[], Awaitable[Exchange]]
AsyncHandler = Callable[[], Awaitable[HttpResponseBase]]

# ordinary outcomes, logged for debugging only
_LEVELS = dict.fromkeys(("executed", "refused", "replayed", "unkeyed"), logging.DEBUG)


def execute(exchange: Exchange, handler: Handler, *, rewind: Callable[[], bool]) -> HttpResponseBase:
    """Run the handler once for its key; give every later copy the first answer.

    Args:
        rewind: called before the handler runs again, because its transaction met another one; returns False where
            it cannot.
    """
    with logs.span() as span:
        try:
            steps = _steps(exchange, rewind)
            answer = _advance(steps.send, None)
            while answer is None:
                try:
                    response = handler()
                except BaseException as error:
                    answer = _advance(steps.throw, error)
                else:
                    answer = _advance(steps.send, response)
            return _answered(exchange, answer)
        finally:
            _report(exchange, span)


def replay(exchange: Exchange) -> HttpResponseBase | None:
    """Answer a copy of a call that has been answered; None for any other, which is not begun."""
    try:
        stored = exchange.look()
        return None if stored is None else _answered(exchange, stored.replay())
    finally:
        if exchange.outcome:
            _report(exchange, None)


async def execute_async(begin: Begin, handler: AsyncHandler, *, rewind: Callable[[], bool]) -> HttpResponseBase:
    """Run `execute` for a coroutine, whose database work shares our thread and transaction.

    A caller that is cancelled is so when the call has ended: what was begun is finished.
    """
    running = asyncio.ensure_future(_execute_async(begin, handler, rewind))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():  # it may be cancelled again: by a time limit, then by a client that has gone
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        error = None if running.cancelled() else running.exception()
        if error is not None and not isinstance(error, Problem):
            log.error("A keyed request failed after its caller had gone.", exc_info=error)
        raise


async def _execute_async(begin: Begin, handler: AsyncHandler, rewind: Callable[[], bool]) -> HttpResponseBase:
    advance = sync_to_async(_advance)
    async with _one_thread():
        exchange = await begin()
        with logs.span() as span:
            try:
                steps = _steps(exchange, rewind)
                answer = await advance(steps.send, None)
                while answer is None:
                    try:
                        response = await handler()
                    except BaseException as error:
                        answer = await advance(steps.throw, error)
                    else:
                        answer = await advance(steps.send, response)
                if exchange.on_replay is not None:
                    return await sync_to_async(_answered)(exchange, answer)
                return _answered(exchange, answer)
            finally:
                _report(exchange, span)


class Rewind:
    """State that a handler's first run finds; a call brings it back for another one.

    Args:
        holders: objects that a run may leave something on, such as its view; copied one level deep.
    """

    def __init__(self, request: HttpRequest, *holders: Any) -> None:
        self._request, self._holders = request, holders
        self._found: list[tuple[Any, dict[str, Any]]] | None = None

    def note_first_run(self) -> bool:
        """Note what the first run finds; return False for any later run."""
        if self._found is not None:
            return False
        # as `get_messages` does, whose import would cost every project
        holders = (getattr(self._request, "_messages", None), *self._holders)
        self._found = [(each, _copied(vars(each))) for each in holders if hasattr(each, "__dict__")]
        return True

    def __call__(self) -> bool:
        """Return False for an upload, which may be closed by now."""
        request: Any = self._request
        if request.content_type == "multipart/form-data" or not hasattr(request, "_body"):
            return False
        request._stream.seek(0)
        for each, attributes in self._found or ():
            vars(each).clear()
            vars(each).update(_copied(attributes))
        return True


def _copied(attributes: Mapping[str, Any]) -> dict[str, Any]:
    containers = {dict, list, set}
    return {name: value.copy() if type(value) in containers else value for name, value in attributes.items()}


def _steps(exchange: Exchange, rewind: Callable[[], bool]) -> Generator[None, HttpResponseBase, HttpResponseBase]:
    """Answer one keyed call; the handler runs at each `yield`."""
    stored = exchange.begin()  # claim the key, or find its answer, or raise the key's problem
    if stored is not None:
        return stored.replay()
    while True:
        try:
            database = exchange._database or connections[exchange._config.database]
            tenant = getattr(database, "tenant", None)
            exchange.is_handling = True
            try:
                response = rendered((yield))
            finally:
                exchange.is_handling = False
                restore_tenant(database, tenant)
            # commit; a concurrent duplicate that was faster gives its answer instead
            return exchange.finish(response)
        except BaseException as error:
            if exchange.repeat(error, rewind):
                continue
            stored = exchange.fail()  # undo; None: nothing was committed for this key
            if stored is None or not isinstance(error, Exception):
                raise
            log.error("A keyed request failed after its key was answered; the answer is given.", exc_info=error)
            return stored.replay()


def restore_tenant(database: Any, tenant: Any) -> None:
    """Leave the tenant that code has gone to (django-tenants): its ledger lacks this call."""
    if tenant is not None and database.schema_name != tenant.schema_name:
        database.set_tenant(tenant)


def _advance(step: Callable[[Any], None], value: Any) -> Any:
    """Drive the protocol to its next stop: None at the handler, else the answer."""
    try:
        step(value)
    except StopIteration as end:
        return end.value
    return None


def _answered(exchange: Exchange, response: HttpResponseBase) -> HttpResponseBase:
    if exchange.on_replay is not None and REPLAYED_HEADER in response.headers:
        shown = exchange.on_replay(response)
        if not isinstance(shown, HttpResponseBase | None):
            raise TypeError(f"on_replay returned {shown!r}. Return an HttpResponse there, or None.")
        response = shown or response
    # Suppress Django's 4xx warning: `_report` has logged it.
    if exchange.outcome in _LEVELS:
        response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def _report(exchange: Exchange, span: Any) -> None:
    """Give a call's outcome to its span, to the request log of its key and to one log line."""
    if not exchange.outcome:  # its key could not be claimed
        exchange._count("failed")
    if span is not None:
        for name in ("mode", "key_digest", "outcome", "subject"):
            if value := getattr(exchange, name):
                span.set_attribute(f"idempotency.{name}", str(value))
    exchange.log_arrival()
    log.log(_LEVELS.get(exchange.outcome, logging.INFO), "keyed request: %s", exchange.outcome)


class _SharedThread(Executor):
    """Thread that ends with the last of its users: a request, and each keyed call in it.

    A server that stops ends a request before its call. In another thread the rest would commit by itself.
    """

    def __init__(self, executor: Executor, *, users: int) -> None:
        self._executor, self.users, self.submit = executor, users, executor.submit  # type: ignore[method-assign]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.users -= 1
        if not self.users:
            self._executor.shutdown(wait, cancel_futures=cancel_futures)


@asynccontextmanager
async def _one_thread() -> AsyncIterator[None]:
    """Keep a coroutine's database work in one thread, apart from others on its event loop.

    Django's ASGI handler gives every request such a thread, and under WSGI it is the caller's own. Elsewhere it is
    made here and its connections are closed; else two requests would meet inside one transaction.
    """
    if getattr(AsyncToSync.executors, "current", None) is not None:
        yield  # in the thread of the caller, which waits for us
        return
    threads, own = SyncToAsync.context_to_thread_executor, ThreadSensitiveContext()
    request: Any = SyncToAsync.thread_sensitive_context.get(None)
    thread: Any = None if request is None else threads.get(request)
    SyncToAsync.thread_sensitive_context.set(own)
    if thread is None:  # there is no request, or it has ended
        await sync_to_async(int)()  # asgiref begins a thread
        thread = _SharedThread(threads[own], users=0)
    elif not isinstance(thread, _SharedThread):
        thread = threads[request] = _SharedThread(thread, users=1)
    thread.users += 1
    threads[own] = thread
    try:
        yield
    finally:
        if thread.users == 1:  # we are the last
            await sync_to_async(connections.close_all)()
        threads.pop(own).shutdown(wait=False)
