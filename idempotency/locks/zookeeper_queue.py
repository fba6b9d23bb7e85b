"""A name's queue in ZooKeeper: ephemeral sequential nodes in one folder, on kazoo's raw calls. For `zookeeper`.

Who comes makes a node, looks who is before it, and watches that one node and no other: a release wakes one waiter.

Never trusts an answer that did not come: a node is recognised by its unique prefix, and one that nobody wants any
more is taken away as soon as the server can be asked again. Never knows who holds how often: `zookeeper` does.
"""

import contextlib
import os
import re
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionLoss,
    KazooException,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol.states import KazooState, KeeperState

from idempotency.locks.engine.holder import Holder
from idempotency.locks.engine.steps import Steps, Wait
from idempotency.locks.errors import LockLost, LockUnavailable

ANSWER_SECONDS = 10.0  # kazoo's own default for a session: a server silent for that long has forgotten us
LOOK_SECONDS = 3600.0  # who waits for ever looks once in that time
NODE = re.compile(r"[0-9a-f]{32}_-?\d{9,10}")
NUMBERS = 2**32  # the server counts in a signed 32-bit integer, and wraps around
UNANSWERED = (ConnectionLoss, OperationTimeoutError, SessionMovedError)  # done or not, nobody told us


@dataclass(slots=True, eq=False)
class Place:
    """One place in a queue; who is first in it holds.

    Attributes:
        prefix: of the node's name, unique, so that it is found without the server's answer.
        asked: whether a node was ever asked for: it may stand although nobody told us.
        node: its name, once that is known.
        token, session: of the node: the transaction that made it, and whose end is its own.
        count: acquires without their releases.
    """

    folder: str
    holder: Holder
    prefix: str = field(default_factory=lambda: f"{uuid.uuid4().hex}_")
    asked: bool = False
    node: str | None = None
    token: int = 0
    session: int = 0
    count: int = 1

    def stands(self, node: str, stat: Any) -> None:
        """The server told us of the node."""
        self.node, self.token, self.session = node, stat.czxid, stat.ephemeralOwner


class Desk:
    """What this process has at one client: its holds, by folder and holder, and who waits for which node."""

    def __init__(self) -> None:
        self.guard = threading.Lock()  # of the holds and their counts
        self.holds: dict[tuple[str, str], Place] = {}
        self.waiting: dict[Any, str] = {}

    def told(self, event: Any) -> None:
        """kazoo's watch fired: a node changed, or (without a path) the connection did."""
        for bell, path in list(self.waiting.items()):
            if event.path in {None, path}:
                bell.ring()

    def changed(self, state: Any) -> None:
        """kazoo's connection is another: whoever waits looks again."""
        for bell in list(self.waiting):
            bell.ring()


_desks: "weakref.WeakKeyDictionary[Any, Desk]" = weakref.WeakKeyDictionary()
os.register_at_fork(after_in_child=_desks.clear)  # what the parent holds, under whatever name, the child does not


def desk_of(client: KazooClient) -> Desk:
    """The one of this process for `client`."""
    desk = _desks.setdefault(client, Desk())
    client.add_listener(desk.changed)  # kept in a set: once, however often
    return desk


def session_ended(client: KazooClient, place: Place) -> bool:
    """Whether the session of `place`, and its node with it, is known to be over."""
    if client.state == KazooState.LOST:
        return True
    session = client.client_id  # None while the connection is away
    return session is not None and session[0] != place.session


class Queue:
    """One name's queue, asked through `client`; its methods are steps.

    Args:
        bell: makes what the runner of the steps can wait for, and kazoo's threads can ring.
    """

    def __init__(self, client: KazooClient, folder: str, bell: Callable[[], Any]) -> None:
        self._client = client
        self._folder = folder
        self._bell = bell

    def first(self, place: Place, ends_at: float) -> Steps[bool]:
        """Line up and wait until nobody is before us (True), or until it is too late (False).

        Args:
            ends_at: on `time.monotonic`; infinite for ever.
        """
        while True:
            try:
                if place.node is None:
                    yield from self._line_up(place)
                children = yield from self._children()
                if place.node not in children:
                    raise SessionExpiredError("our node is gone")
                before = predecessor(place.node, children)
                if before is None:
                    return True
                if time.monotonic() >= ends_at:
                    return False
                yield from self._until_changed(before, ends_at)
            except (*UNANSWERED, SessionExpiredError) as error:
                if time.monotonic() >= ends_at:
                    raise LockUnavailable(f"The place in the queue is unknown: {type(error).__name__}.") from error
                place.node = None  # stands still if the session does; if not, to the end of the queue

    def leave(self, place: Place) -> Steps[None]:
        """Take away the node of one who gives up; where that cannot be had at once, in the background."""
        try:
            if place.node is not None and self._client.connected:
                with contextlib.suppress(NoNodeError):
                    yield from self._asked(self._client.delete_async, place.node)
                place.asked = False
        except (KazooException, LockUnavailable):
            pass  # why he gives up says more
        finally:
            self.sweep(place)

    def give_back(self, place: Place) -> Steps[None]:
        """Delete the node of the holder.

        Raises:
            LockLost: it did not stand any more.
            LockUnavailable: no answer; it goes in the background.
        """
        repeated = False
        try:
            while place.asked:
                try:
                    yield from self._asked(self._client.delete_async, place.node)
                    place.asked = False
                except UNANSWERED:
                    repeated = True
                except (NoNodeError, SessionExpiredError) as error:
                    place.asked = False
                    if not repeated or session_ended(self._client, place):  # else our own first try deleted it
                        raise LockLost(f"The node {place.node} was gone.") from error
        finally:
            self.sweep(place)

    def sweep(self, place: Place) -> None:
        """Take its node away in the background, if there may be one."""
        if place.asked:
            self._client.handler.spawn(_sweep, self._client, place)

    def _line_up(self, place: Place) -> Steps[None]:
        """Find the node that an unanswered request made, or make it."""
        if place.asked:
            # another server may be behind the one that we asked; after this it shows the node, or never will
            yield from self._asked(self._client.sync_async)
            for child in (yield from self._children()):
                if child.startswith(place.prefix):
                    stat = yield from self._asked(self._client.exists_async, child)
                    if stat is not None:
                        return place.stands(child, stat)
        place.asked = True
        create = partial(self._client.create_async, ephemeral=True, sequence=True, include_data=True)
        whose = place.holder.name.encode()  # for people who look at the queue
        try:
            path, stat = yield from self._asked(create, place.prefix, whose)
        except NoNodeError:  # the first of this name. Not `makepath`: it could create after we have given up
            yield from self._asked(self._client.ensure_path_async)
            path, stat = yield from self._asked(create, place.prefix, whose)
        return place.stands(path.rpartition("/")[2], stat)

    def _children(self) -> Steps[list[str]]:
        try:
            children: list[str] = yield from self._asked(self._client.get_children_async)
        except NoNodeError:
            return []
        return children

    def _until_changed(self, node: str, ends_at: float) -> Steps[None]:
        """Until `node` is gone, the connection is another, or it is too late."""
        desk, bell = desk_of(self._client), self._bell()
        desk.waiting[bell] = f"{self._folder}/{node}"
        try:
            # `told` is the same function each time: kazoo keeps one, however many come and give up
            yield from self._asked(self._client.get_async, node, desk.told)
            yield Wait(bell, min(ends_at - time.monotonic(), LOOK_SECONDS))
        except NoNodeError:
            pass
        finally:
            del desk.waiting[bell]

    def _asked(self, ask: Callable[..., Any], node: str | None = None, *arguments: Any) -> Steps[Any]:
        """What the server says of a node, or of the folder.

        One that is away is not asked: kazoo would keep the request, and nobody could take it back.

        Raises:
            LockUnavailable: no answer in time; it may come later.
            kazoo.exceptions.KazooException: as kazoo says.
        """
        if self._client.state != KazooState.CONNECTED:
            yield from self._connected()
        bell = self._bell()
        answer = ask(self._folder if node is None else f"{self._folder}/{node}", *arguments)
        answer.rawlink(lambda _: bell.ring())
        if not (yield Wait(bell, ANSWER_SECONDS)):
            raise LockUnavailable(f"ZooKeeper did not answer for {ANSWER_SECONDS:g} s.")
        return answer.get_nowait()

    def _connected(self) -> Steps[None]:
        desk, bell = desk_of(self._client), self._bell()
        give_up_at = time.monotonic() + ANSWER_SECONDS
        desk.waiting[bell] = ""
        try:
            while self._client.state != KazooState.CONNECTED:
                if self._client.client_state == KeeperState.CLOSED:
                    raise LockUnavailable("The client of ZooKeeper is not started, or stopped.")
                if not (yield Wait(bell, give_up_at - time.monotonic())):
                    raise LockUnavailable(f"No connection to ZooKeeper for {ANSWER_SECONDS:g} s.")
        finally:
            del desk.waiting[bell]


def predecessor(node: str, children: Iterable[str]) -> str | None:
    """Who stands right before `node` in the queue, by the server's numbers; None if nobody does."""
    own = _number(node)
    distances = {(own - _number(child)) % NUMBERS: child for child in children if NODE.fullmatch(child)}
    nearest = min((distance for distance in distances if 0 < distance < NUMBERS // 2), default=None)
    return None if nearest is None else distances[nearest]


def _number(node: str) -> int:
    return int(node.rpartition("_")[2])


def _sweep(client: KazooClient, place: Place) -> None:
    """Blocks until no node of `place` stands, however often the connection is lost; at most the session's life."""
    while True:
        try:
            client.sync(place.folder)
            for child in client.get_children(place.folder):
                if child.startswith(place.prefix):
                    client.delete(f"{place.folder}/{child}")
        except UNANSWERED:
            continue  # kazoo answers the next request when it is connected again
        except KazooException:
            pass  # it is gone, by itself or with its session
        return
