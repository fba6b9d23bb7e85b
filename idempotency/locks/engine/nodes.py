"""Nodes of ZooKeeper's queues: what this process has there, and the order they stand in."""

import math
import os
import re
import uuid
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol.states import EventType, KazooState

from idempotency.locks.engine.counted import Desk, SessionHold

NODE = re.compile(r"[0-9a-f]{32}r?_-?\d{9,10}")
NUMBERS = 2**32  # the server counts in a signed 32-bit integer, and wraps around
MAYBE_DONE = (exceptions.ConnectionLoss, exceptions.OperationTimeoutError, exceptions.SessionMovedError)


@dataclass(eq=False, kw_only=True)
class Place(SessionHold):
    """Place in a queue; the first one holds. Its token is the transaction that made the node."""

    client: KazooClient
    folder: str
    prefix: str = ""  # of the node's name, unique, so that it is found without the server's reply
    asked: bool = False  # a node was asked for, and may exist although no reply came
    node: str | None = None  # its name, once that is known
    session: int = 0  # its end is the node's end
    gone: bool = False  # the server said that the node is
    hears: bool = False  # it wants to, once it holds
    ends_at: float = math.inf  # end of its wait, on `time.monotonic`

    def __post_init__(self) -> None:
        self.prefix = f"{uuid.uuid4().hex}{'r' if self.shared else ''}_"

    def found(self, node: str, stat: Any) -> None:
        self.node, self.token, self.session = node, stat.czxid, stat.ephemeralOwner

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.node}"

    @property
    def ended(self) -> bool:
        """True if its node is known to be gone, mostly with its session."""
        if self.gone or self.client.state == KazooState.LOST:
            return True
        session = self.client.client_id  # None while the connection is away
        return session is not None and session[0] != self.session

    @property
    def lost(self) -> bool:
        """True also while it is not connected."""
        return not self.client.connected or self.ended

    def cancel(self) -> None:
        """Let the time of its wait be over, and have the waiters of this name look."""
        self.ends_at = 0.0
        for bell, path in list(desk_of(self.client).waiting.items()):
            if f"{path}/".startswith(f"{self.folder}/"):
                bell.ring()

    def abandon(self) -> None:
        """Delete its node in the background, if there may be one."""
        if self.asked:
            self.client.handler.spawn(self._sweep)

    def _sweep(self) -> None:
        """Delete its nodes, however often the connection is lost, until the session ends."""
        while True:
            try:
                self.client.sync(self.folder)
                for child in self.client.get_children(self.folder):
                    if child.startswith(self.prefix):
                        self.client.delete(f"{self.folder}/{child}")
            except MAYBE_DONE:
                continue  # kazoo answers the next request when it is connected again
            except KazooException:
                pass  # it is gone, by itself or with its session
            return


@dataclass(eq=False)
class QueueDesk(Desk):
    """Desk of one client: also its waiters' bells, and holds with a listener by path of node."""

    waiting: dict[Any, str] = field(default_factory=dict)
    heard: dict[str, Place] = field(default_factory=dict)

    def watch(self, event: Any) -> None:
        """Notify the waiters of a node that changed, or all if (without a path) the connection did."""
        if event.type == EventType.DELETED and (place := self.heard.pop(event.path, None)):
            place.gone = True
            place.over("lost")
        for bell, path in list(self.waiting.items()):
            if event.path in {None, path}:
                bell.ring()

    def changed(self, state: Any) -> None:
        """Notify all waiters: the state of kazoo's connection changed."""
        for bell in list(self.waiting):
            bell.ring()
        for place in list(self.heard.values()):
            if place.ended and self.heard.pop(place.path, None) is not None:
                place.over("lost")


_desks: "weakref.WeakKeyDictionary[Any, QueueDesk]" = weakref.WeakKeyDictionary()
os.register_at_fork(after_in_child=_desks.clear)  # the child does not hold what its parent does, under any name


def desk_of(client: KazooClient) -> QueueDesk:
    """Return the one desk of this process for `client`."""
    desk = _desks.setdefault(client, QueueDesk())
    client.add_listener(desk.changed)  # kept in a set: once, however often
    return desk


def predecessor(node: str, nodes: list[str]) -> str | None:
    """Return the node that `node` waits for: the one before it, or a reader's last writer."""
    before = reversed(nodes[: nodes.index(node)])
    return next((other for other in before if not (is_shared(node) and is_shared(other))), None)


def in_order(children: Iterable[str]) -> list[str]:
    """Sort the queue's nodes by the server's numbers, which wrap: by their distances from one."""
    nodes = [child for child in children if NODE.fullmatch(child)]
    numbers = {node: int(node.rpartition("_")[2]) for node in nodes}
    return sorted(nodes, key=lambda node: (numbers[node] - numbers[nodes[0]] + NUMBERS // 2) % NUMBERS)


def is_shared(node: str) -> bool:
    return node[32] == "r"
