"""The two transports: I/O and nothing else. What to send and what to do after it is decided in `sending`."""

import time
from collections.abc import Awaitable, Callable
from typing import Unpack, cast

import anyio
import anyio.to_thread
import httpx

from idempotency.client.sending import Options, Sender, Sending, is_unsafe


class IdempotentTransport(httpx.BaseTransport):
    """Sends POST, PUT, PATCH and DELETE with an Idempotency-Key, again with the same one until there is an answer.

    The answer to these is read whole before it is returned, so that one that breaks off is asked for again.

    Args:
        inner: sends each attempt; `httpx.HTTPTransport()` if None. Closed together with this one.
        sleep: waits for so many seconds.
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
        """Called by `httpx.Client`."""
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
                try:
                    response = self._attempt(request)
                except Exception as error:
                    wait = sending.wait_after(error)
                    if wait is None:
                        raise
                else:
                    wait = sending.wait_after(response)
                    if wait is None:
                        return response
                self._sleep(wait)
        finally:
            sending.end()

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()

    def _attempt(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        stream = cast(httpx.SyncByteStream, response.stream)
        try:
            response.stream = httpx.ByteStream(b"".join(stream))
        finally:
            stream.close()
        return response


class AsyncIdempotentTransport(httpx.AsyncBaseTransport):
    """`IdempotentTransport` for `httpx.AsyncClient`, under asyncio and trio; the keys are kept by a thread.

    Args:
        inner: sends each attempt; `httpx.AsyncHTTPTransport()` if None. Closed together with this one.
        sleep: waits for so many seconds.
        options: see `Sender`.

    Raises:
        GaveUp: no final answer came.
        IntentBoundElsewhere, BodyTooLarge, TypeError: before anything was sent.
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
        """Called by `httpx.AsyncClient`."""
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
                try:
                    response = await self._attempt(request)
                except Exception as error:
                    wait = sending.wait_after(error)
                    if wait is None:
                        raise
                else:
                    wait = sending.wait_after(response)
                    if wait is None:
                        return response
                await self._sleep(wait)
        finally:
            sending.end()

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()

    async def _attempt(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        stream = cast(httpx.AsyncByteStream, response.stream)
        try:
            response.stream = httpx.ByteStream(b"".join([part async for part in stream]))
        finally:
            await stream.aclose()
        return response
