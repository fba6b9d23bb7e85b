"""Subscriber's connection, read by one thread at a time, its leader. Others may send subscriptions on it.

redis-py's own reconnects without saying so, and a waiter must learn that messages may be lost. A message also
passes through fewer layers here, and until it has passed nobody holds the lock.
"""

import contextlib
import os
import select
import socket
import threading
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError

from idempotency.redis.connection import connection_beside

REST_SECONDS = 2.0  # for the rest of a message that has begun to arrive


class Call:
    """Event of one thread, which may wait for a message too."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def set(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it was called so often already
            self._writer.send(b"!")

    def wait(self, seconds: float, *beside: int) -> bool:
        """Wait for a call (True), for `seconds`, or until a descriptor `beside` can be read."""
        poll = select.poll()
        for number in (self._reader.fileno(), *beside):
            poll.register(number, select.POLLIN)
        poll.poll(seconds * 1000)
        try:
            return bool(self._reader.recv(4096))
        except BlockingIOError:
            return False

    def __del__(self) -> None:
        """Close its sockets; nobody calls or waits any more."""
        self._reader.close()
        self._writer.close()


class Subscription:
    """Connection beside those of `pool`. Raises what redis-py raises, and is useless then.

    Attributes:
        connection: of redis-py, with a socket; `number` is a descriptor of it.
        leader: the current reader, or None. Only the leader gives the lead back, by setting None: one store, so
            that an interrupt comes before it or after it.
        broken: messages may have been lost, so nobody reads it any more.
    """

    def __init__(self, pool: Any) -> None:
        self.connection = connection_beside(pool)
        self._sending = threading.Lock()
        self._choosing = threading.Lock()
        self.leader: Any = None
        self.broken = False
        self.connection.connect()
        self.connection._sock.settimeout(REST_SECONDS)
        # the parser is read past the connection, which would connect again where it has been closed
        self._reader = self.connection._parser
        self._pushes: dict[str, bool] = {}
        if str(self.connection.protocol) == "3":
            self._pushes["push_request"] = True
            self._reader.set_pubsub_push_handler(_as_it_is)  # redis-py's own prints each message for a log
        # a descriptor of our own: redis-py may close its one at any time, and another socket get the number
        self.number = os.dup(self.connection._sock.fileno())
        self._readable = select.poll()
        self._readable.register(self.number, select.POLLIN)

    def lead(self, who: Any) -> bool:
        """Return whether `who` reads from now on: nobody else does, and it is not broken."""
        with self._choosing:
            if self.leader is None and not self.broken:
                self.leader = who
        return self.leader is who

    def subscribe(self, *channels: str) -> None:
        """Ask for the messages of channels, each after one of type ``subscribe``."""
        self._send("SUBSCRIBE", *channels)

    def unsubscribe(self, *channels: str) -> None:
        self._send("UNSUBSCRIBE", *channels)

    def _send(self, *command: str) -> None:
        with self._sending:
            self._refuse_if_broken()
            try:
                self.connection.send_command(*command, check_health=False)
            except BaseException:
                self.broken = True
                raise

    def get_message(self, *, timeout: float) -> dict[str, Any] | None:
        """Return the next message with type, channel and data. None if none came in `timeout` seconds."""
        self._refuse_if_broken()
        try:
            # what came together with the last one has left the socket; looked at first, while there is time
            if not self._reader.can_read(timeout=0) and not self._readable.poll(max(timeout, 0.0) * 1000):
                return None
            reply = self._reader.read_response(disable_decoding=True, **self._pushes)
        except (AttributeError, ValueError) as error:  # of redis-py without hiredis, where a sender has closed it
            raise RedisConnectionError("This subscription has ended.") from error
        if reply is None:  # pushed by the server of its own accord, and no message
            return None
        if isinstance(reply, Exception):
            raise reply
        kind, channel, data = reply
        return {"type": kind.decode(), "channel": channel, "data": data}

    def close(self) -> None:
        with self._sending:
            self.broken = True
            self.connection.disconnect()
            if self.number >= 0:
                os.close(self.number)
                self.number = -1

    def _refuse_if_broken(self) -> None:
        if self.broken:  # redis-py would connect it again, to hear nothing
            raise RedisConnectionError("This subscription has ended.")


def _as_it_is(message: Any) -> Any:
    return message
