"""Transports, sync and async: I/O and nothing else. `sending` decides on each attempt."""

import time
from collections.abc import Awaitable, Callable
from typing import Unpack, cast

import anyio
import anyio.to_thread
import httpx

from idempotency.client.sending import Options, Sender, Sending, is_unsafe


class IdempotentTransport(httpx.BaseTransport):
    """Transport that sends unsafe requests with an Idempotency-Key, and retries with the same.

    Unsafe are POST, PUT, PATCH and DELETE; any other request passes as it is. Their answers are read whole before
    they are returned, so that one that breaks off is retried too.

    Args:
        inner: sends each attempt; `httpx.HTTPTransport()` if None. Closed together with this one.
        sleep: called with the seconds between two attempts.
        options: see `Sender`.

    Raises:
        GaveUp: no final answer came.
        IntentBoundElsewhere, BodyTooLarge, TypeError: before anything was sent.
    """

    def __init__(
        self,
        inner: httpx.BaseTransport | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        **options: Unpack[Options],
    ) -> None:
        self._inner = inner or httpx.HTTPTransport()
        self._sleep = sleep
        self._sender = Sender(**options)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not is_unsafe(request):
            return self._inner.handle_request(request)
        body = self._sender.body_of(request)
        if body is not None:
            for part in cast(httpx.SyncByteStream, request.stream):
                body.add(part)
            request.stream = body.stream()
        self._sender.mark(request)
        sending = Sending(self._sender, request)
        try:
            while True:
                sending.begin_attempt()
                outcome = self._attempt(request, sending)
                wait = sending.wait_after(outcome)
                if wait is None:
                    return cast(httpx.Response, outcome)
                self._sleep(wait)
        finally:
            sending.end()

    def close(self) -> None:
        self._inner.close()

    def _attempt(self, request: httpx.Request, sending: Sending) -> httpx.Response | Exception:
        try:
            response, content = self._inner.handle_request(request), bytearray()
            stream = cast(httpx.SyncByteStream, response.stream)
            try:
                for part in stream:
                    sending.must_be_in_time()
                    content += part
                response.stream = httpx.ByteStream(bytes(content))
            finally:
                stream.close()
        except Exception as error:
            return error
        return response


class AsyncIdempotentTransport(httpx.AsyncBaseTransport):
    """`IdempotentTransport` for `httpx.AsyncClient`, under asyncio and trio.

    Args:
        inner: sends each attempt; `httpx.AsyncHTTPTransport()` if None. Closed together with this one.
        sleep: called with the seconds between two attempts.
        options: see `Sender`.

    Raises:
        GaveUp, IntentBoundElsewhere, BodyTooLarge, TypeError: as of `IdempotentTransport`.
    """

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        **options: Unpack[Options],
    ) -> None:
        self._inner = inner or httpx.AsyncHTTPTransport()
        self._sleep = sleep
        self._sender = Sender(**options)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not is_unsafe(request):
            return await self._inner.handle_async_request(request)
        body = self._sender.body_of(request)
        if body is not None:
            async for part in cast(httpx.AsyncByteStream, request.stream):
                body.add(part)
            request.stream = body.stream()
        # syncing a file to the disk would hold up the event loop
        await anyio.to_thread.run_sync(self._sender.mark, request)
        sending = Sending(self._sender, request)
        try:
            while True:
                sending.begin_attempt()
                outcome = await self._attempt(request, sending)
                wait = sending.wait_after(outcome)
                if wait is None:
                    return cast(httpx.Response, outcome)
                await self._sleep(wait)
        finally:
            sending.end()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _attempt(self, request: httpx.Request, sending: Sending) -> httpx.Response | Exception:
        try:
            response, content = await self._inner.handle_async_request(request), bytearray()
            stream = cast(httpx.AsyncByteStream, response.stream)
            try:
                async for part in stream:
                    sending.must_be_in_time()
                    content += part
                response.stream = httpx.ByteStream(bytes(content))
            finally:
                await stream.aclose()
        except Exception as error:
            return error
        return response
