"""Queue of a name in ZooKeeper: ephemeral sequential nodes in one folder.

A caller makes a node, looks for the one before it, and watches that one and no other: a release wakes one waiter.

Never relies on a reply that did not come: a node is recognised by its unique prefix, and deleted in the background
once nobody wants it. Never counts holds: `zookeeper` does.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError, SessionExpiredError
from kazoo.protocol.states import KazooState, KeeperState

from idempotency.locks.engine.nodes import MAYBE_DONE, Place, QueueDesk, desk_of, in_order, is_shared, predecessor
from idempotency.locks.engine.steps import Steps, Wait
from idempotency.locks.errors import LockUnavailable

ANSWER_SECONDS = 10.0  # kazoo's default for a session: a server silent for that long has ended ours
NAME_MAX = 100_000  # of the million bytes that a request may have
LOOK_SECONDS = 3600.0  # between looks of a wait without end


class Unanswered(LockUnavailable):
    """The connection was lost before the reply."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Queue of one name, reached through `client`; its methods are steps."""

    client: KazooClient
    folder: str
    bell: Callable[[], Any]  # makes what the runner of the steps can wait for, and kazoo's threads can ring
    places: int | None = None  # that hold, at the front. Of several only one caller may wait here at a time

    def first(self, place: Place) -> Steps[bool]:
        """Queue and wait until nobody is before us (True), or until it is too late (False)."""
        while True:
            try:
                if place.node is None:
                    yield from self._queue_up(place)
                nodes = yield from self.nodes()
                if place.node not in nodes:
                    raise SessionExpiredError("our node is gone")
                if place.node in self._first_of(nodes):
                    if place.hears:
                        yield from self._hear(place)
                    return True
                if time.monotonic() >= place.ends_at:
                    return False
                yield from self._until_changed(place, nodes)
            except (Unanswered, SessionExpiredError) as error:
                self._desk.heard.pop(place.path, None)
                if time.monotonic() >= place.ends_at:
                    raise LockUnavailable(f"The place in the queue is unknown: {type(error).__name__}.") from error
                place.node = None  # is found again if the session lasts; if not, to the end of the queue
                place.gone = False

    def leave(self, place: Place) -> Steps[None]:
        """Delete the node of a waiter that gives up, in the background if it must be."""
        self._desk.heard.pop(place.path, None)
        try:
            if place.node is not None and self.client.connected:
                with contextlib.suppress(NoNodeError):
                    yield from self._asked(self.client.delete_async, place.node)
                place.asked = False
        except (KazooException, LockUnavailable):
            pass  # the reason for giving up says more
        finally:
            place.abandon()

    def give_back(self, place: Place) -> Steps[bool]:
        """Delete the holder's node, at last in the background; return False if it was gone."""
        repeated = False
        self._desk.heard.pop(place.path, None)  # first: our own deletion is no loss
        try:
            while place.asked:
                try:
                    yield from self._asked(self.client.delete_async, place.node)
                    place.asked = False
                except Unanswered:
                    repeated = True
                except (NoNodeError, SessionExpiredError):
                    place.asked = False
                    # after a repeat our own first try deleted it
                    return repeated and not place.ended
        finally:
            place.abandon()
        return True

    def nodes(self) -> Steps[list[str]]:
        try:
            return in_order((yield from self._asked(self.client.get_children_async)))
        except NoNodeError:
            return []

    def contenders(self, *, holders: bool = False) -> Steps[tuple[list[str], dict[str, Any]]]:
        """Read the queue's nodes in order, and the data and stat of each, or of those that hold."""
        nodes = yield from self.nodes()
        found = {}
        for node in self._first_of(nodes) if holders else nodes:
            with contextlib.suppress(NoNodeError):  # it has left meanwhile
                found[node] = yield from self._asked(self.client.get_async, node)
        return nodes, found

    def delete_holders(self, token: int | None = None) -> Steps[bool]:
        """Delete the nodes that hold, or the one of this token; return whether there were any."""
        deleted = False
        for node in self._first_of((yield from self.nodes())):
            with contextlib.suppress(NoNodeError):  # it has left meanwhile
                if token is None or (yield from self._asked(self.client.get_async, node))[1].czxid == token:
                    yield from self._asked(self.client.delete_async, node)
                    deleted = True
        return deleted

    @property
    def _desk(self) -> QueueDesk:
        return desk_of(self.client)

    def _first_of(self, nodes: list[str]) -> list[str]:
        """Return the holders: the first `n`, the first one, or all readers before a writer."""
        return nodes[: self.places] if self.places else list(takewhile(is_shared, nodes)) or nodes[:1]

    def _hear(self, place: Place) -> Steps[None]:
        """Watch the node of a holder that listens. Until this is done a loss goes unseen."""
        self._desk.heard[place.path] = place
        notify, place.notify = place.notify, None
        try:
            stat = yield from self._asked(self.client.exists_async, place.node, self._desk.watch)
        finally:
            place.notify = notify
        if stat is None or place.ended:
            raise SessionExpiredError("our node is gone")

    def _queue_up(self, place: Place) -> Steps[None]:
        """Find the node that an unanswered request made, or make it."""
        if place.asked:
            # another server may lag behind the one that we asked; after this it shows the node, or never will
            yield from self._asked(self.client.sync_async)
            for node in (yield from self.nodes()):
                if node.startswith(place.prefix):
                    stat = yield from self._asked(self.client.exists_async, node)
                    if stat is not None:
                        return place.found(node, stat)
        place.asked = True
        create = partial(self.client.create_async, ephemeral=True, sequence=True, include_data=True)
        whose = place.holder.name.encode()  # for people that look at the queue
        try:
            path, stat = yield from self._asked(create, place.prefix, whose)
        except NoNodeError:  # the first of this name. Not `makepath`: it could create after we have given up
            yield from self._asked(self.client.ensure_path_async)
            path, stat = yield from self._asked(create, place.prefix, whose)
        return place.found(path.rpartition("/")[2], stat)

    def _until_changed(self, place: Place, nodes: list[str]) -> Steps[None]:
        """Wait for the one before it, or any, to go; for a new connection, or the deadline."""
        before = None if self.places else predecessor(place.node or "", nodes)
        desk, bell = self._desk, self.bell()
        desk.waiting[bell] = self.folder if before is None else f"{self.folder}/{before}"
        ask = self.client.get_children_async if before is None else self.client.get_async
        try:
            # the same method each time: kazoo keeps one watch, however many come and give up
            seen = yield from self._asked(ask, before, desk.watch)
            if before is not None or in_order(seen) == nodes:
                yield Wait(bell, min(place.ends_at - time.monotonic(), LOOK_SECONDS))
        except NoNodeError:
            pass
        finally:
            del desk.waiting[bell]

    def _asked(self, ask: Callable[..., Any], node: str | None = None, *arguments: Any) -> Steps[Any]:
        """Make a call about a node or the folder; return the reply, or raise kazoo's error."""
        # not of a server that is away: kazoo would keep the request, and nobody could take it back
        if self.client.state != KazooState.CONNECTED:
            yield from self._connected()
        bell = self.bell()
        answer = ask(self.folder if node is None else f"{self.folder}/{node}", *arguments)
        answer.rawlink(lambda _: bell.ring())
        if not (yield Wait(bell, ANSWER_SECONDS)):
            raise LockUnavailable(f"ZooKeeper did not reply for {ANSWER_SECONDS:g} s.")
        try:
            return answer.get_nowait()
        except MAYBE_DONE as error:
            raise Unanswered(f"ZooKeeper did not reply: {type(error).__name__}.") from error

    def _connected(self) -> Steps[None]:
        desk, bell = self._desk, self.bell()
        give_up_at = time.monotonic() + ANSWER_SECONDS
        desk.waiting[bell] = ""
        try:
            while self.client.state != KazooState.CONNECTED:
                if self.client.client_state == KeeperState.CLOSED:
                    raise LockUnavailable("The client of ZooKeeper is not started, or stopped.")
                if not (yield Wait(bell, give_up_at - time.monotonic())):
                    raise LockUnavailable(f"No connection to ZooKeeper for {ANSWER_SECONDS:g} s.")
        finally:
            del desk.waiting[bell]
