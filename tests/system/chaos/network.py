"""Wires between the shop's parts, which can be cut, silenced and slowed down.

Every web process has a wire of its own to PostgreSQL, to Redis and to the providers. A balancer in front takes the
providers' notifications to whichever web process answers.
"""

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

CHUNK = 65_536
PIECES_MAX = 64  # on their way in one direction

Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Wire:
    """One of them; its state is changed from any thread, by `Network`.

    Attributes:
        name: as plans and logs name it.
        is_cut: open connections are reset, new ones are hung up on.
        delay_seconds: what each piece waits, in each direction.
        passing: not set while nothing goes through and nobody notices.
    """

    def __init__(self, name: str, dial: Dial) -> None:
        self.name = name
        self.is_cut = False
        self.delay_seconds = 0.0
        self.passing = asyncio.Event()
        self.passing.set()
        self._dial = dial
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        self.is_cut = True
        for writer in list(self._open):
            writer.transport.abort()

    def heal(self) -> None:
        self.is_cut, self.delay_seconds = False, 0.0
        self.passing.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        far = None
        try:
            if not self.is_cut:
                far_reader, far = await self._dial()
                self._open |= {writer, far}
                await asyncio.gather(self._pump(reader, far), self._pump(far_reader, writer))
        except OSError:
            pass  # to the other side it looks like what it is: a connection that ended
        finally:
            for end in (writer, far):
                if end is not None:
                    self._open.discard(end)
                    end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pieces keep their order, and each is late by the delay that there was when it came."""
        on_its_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES_MAX)
        now = asyncio.get_running_loop().time

        async def read() -> None:
            while piece := await reader.read(CHUNK):
                await on_its_way.put((now() + self.delay_seconds, piece))
            await on_its_way.put((0, b""))

        async def write() -> None:
            while True:
                due_at, piece = await on_its_way.get()
                if (wait := due_at - now()) > 0:
                    await asyncio.sleep(wait)
                await self.passing.wait()
                if not piece or self.is_cut:
                    writer.close()
                    return
                writer.write(piece)
                await writer.drain()

        await asyncio.gather(read(), write())


class Network:
    """All wires, in a thread with a loop of its own; `close` it in the end."""

    def __init__(self) -> None:
        self.wires: dict[str, Wire] = {}
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.AbstractServer] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()

    def lay_unix(self, name: str, *, here: Path, there: Path) -> None:
        """A wire from the socket `here` to the one at `there`; nothing if it lies already."""
        if name not in self.wires:
            here.parent.mkdir(parents=True, exist_ok=True)
            wire = self._wire(name, lambda: asyncio.open_unix_connection(there))
            self._servers.append(self._call(asyncio.start_unix_server(wire.serve, here)))

    def lay_tcp(self, name: str, *, port: int, to_port: int) -> None:
        """A wire between two ports of this machine; nothing if it lies already."""
        if name not in self.wires:
            self._listen(self._wire(name, lambda: asyncio.open_connection("127.0.0.1", to_port)), port)

    def balance(self, *, port: int, over: list[int]) -> None:
        """The balancer: each connection goes to the next port on which somebody listens."""
        turns = itertools.cycle(over)

        async def dial() -> Any:
            for _ in over[1:]:
                with suppress(OSError):
                    return await asyncio.open_connection("127.0.0.1", next(turns))
            return await asyncio.open_connection("127.0.0.1", next(turns))

        self._listen(Wire("balancer", dial), port)

    def cut(self, name: str) -> None:
        self._loop.call_soon_threadsafe(self.wires[name].cut)

    def silence(self, name: str) -> None:
        self._loop.call_soon_threadsafe(self.wires[name].passing.clear)

    def slow(self, name: str, *, delay_seconds: float) -> None:
        self.wires[name].delay_seconds = delay_seconds

    def heal(self, name: str) -> None:
        self._loop.call_soon_threadsafe(self.wires[name].heal)

    def close(self) -> None:
        """Hang up everywhere."""

        async def end() -> None:
            for server in self._servers:
                server.close()
            for wire in self.wires.values():
                wire.cut()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wire(self, name: str, dial: Dial) -> Wire:
        self.wires[name] = Wire(name, dial)
        return self.wires[name]

    def _listen(self, wire: Wire, port: int) -> None:
        self._servers.append(self._call(asyncio.start_server(wire.serve, "127.0.0.1", port)))

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)
