"""A subscriber's connection, read by one thread; others may tell it what to subscribe to.

redis-py's own would connect again by itself and not say so, and whoever waits must know that messages may be lost;
and a message passes through fewer hands here, which is time that a lock is held by nobody.
"""

import threading
from typing import Any


class Subscription:
    """Made as `pool` makes its connections, beside them. Raises what redis-py raises, and is useless then."""

    def __init__(self, pool: Any) -> None:
        self._connection = pool.connection_class(**pool.connection_kwargs)
        self._sending = threading.Lock()
        self._connection.connect()

    def subscribe(self, *channels: str) -> None:
        """Have their messages, each after one of type ``subscribe``."""
        with self._sending:
            self._connection.send_command("SUBSCRIBE", *channels, check_health=False)

    def unsubscribe(self, *channels: str) -> None:
        with self._sending:
            self._connection.send_command("UNSUBSCRIBE", *channels, check_health=False)

    def get_message(self, *, timeout: float) -> dict[str, Any] | None:
        """The next one as redis-py tells it: type, channel and data; None if none came in `timeout` seconds."""
        if not self._connection.can_read(timeout=timeout):
            return None
        kind, channel, data = self._connection.read_response(
            disable_decoding=True, disconnect_on_error=False, push_request=True
        )
        return {"type": kind.decode(), "channel": channel, "data": data}

    def close(self) -> None:
        self._connection.disconnect()
