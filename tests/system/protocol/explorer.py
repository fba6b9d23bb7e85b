"""Every order in which a few requests can interleave, on real code and real stores.

Actors are threads that stop before each call to the marker or the ledger and inside the handler. One at a time is
let go on, as a list of choices says; a choice may also kill an actor where it stands, or let something happen to
the stores (a flush, a lease that ends). `every_list` goes through all lists of choices, depth first, by running the
code again from the beginning with the next list.

Between two stops an actor does at most one command or statement, so no order that a scheduler, a network or a
crash could bring about is left out, as far as the stores do each command as one.

Of orders that differ only in which of two neighbouring steps on different stores came first, one is run: sleep
sets, after P. Godefroid, Partial-Order Methods for the Verification of Concurrent Systems (LNCS 1032, 1996),
chapter 5. And actors are alike until they move: of those that have not, the first moves first.
"""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg
from django.db import connection, connections

STEPS_MAX = 200
STOP_SECONDS = 30


class Killed(BaseException):
    """The process died here: the server rolls its transaction back."""


class Violation(AssertionError):
    """A promise was broken; the message says in which order."""


class Redundant(Exception):
    """An order of the same meaning was run already."""


class Option(NamedTuple):
    """What can happen next."""

    what: str  # "step", "kill" or "event"
    who: str  # the actor's or the event's name
    touches: str  # the store that others see it on; "" for none

    def commutes_with(self, other: "Option") -> bool:
        """Whether it makes no difference, to anyone, which of the two comes first."""
        if self.who == other.who or self.what == other.what == "kill":  # deaths are counted
            return False
        return not self.touches or self.touches != other.touches


@dataclass
class Event:
    """Something that may happen once, at any time, to the store it `touches`."""

    name: str
    work: Callable[[], object]
    touches: str


@dataclass
class Actor:
    """One request in a thread of its own; `work` sends it and returns the answer."""

    name: str
    work: Callable[[], Any]
    answer: Any = None  # stays None if it was killed
    done: bool = False
    killed: bool = False
    dismissed: bool = False  # ends at its next stop, and keeps its connection
    touches: str = ""
    failure: BaseException | None = None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


_current = threading.local()


def stop(where: str, *, touches: str = "") -> None:
    """Wait to be let go on, or die, before an actor's next command on the store it `touches`."""
    actor: Actor | None = getattr(_current, "actor", None)
    if actor is None:
        return
    run: Run = _current.run
    if not (actor.killed or actor.dismissed):
        run.trace.append(f"{actor.name} before {where}")
        actor.touches = touches
        run.back.release()
        actor.go.acquire()
    if actor.dismissed:
        raise Killed
    if actor.killed:
        _die()
        raise Killed


def _die() -> None:
    """End the connection as a process does that is gone; and wait until the server has noticed."""
    if connection.connection is None:
        return
    backend = connection.connection.info.backend_pid
    connection.close()
    if not _witnesses:
        _witnesses.append(psycopg.connect(**connection.get_connection_params(), autocommit=True))
    while _witnesses[0].execute("SELECT FROM pg_stat_activity WHERE pid = %s", [backend]).fetchone() is not None:
        pass


@dataclass
class Run:
    """One execution under one list of choices: which option to take at each point, and then the first."""

    choices: list[int]
    reduced: bool = True  # leaves out orders of the same meaning
    taken: list[int] = field(default_factory=list)
    options: list[list[bool]] = field(default_factory=list)  # at each point, which of them lead to something new
    trace: list[str] = field(default_factory=list)  # what happened, for people
    back: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _asleep: set[Option] = field(default_factory=set)

    def execute(self, actors: list[Actor], events: list[Event], *, kills: int) -> None:
        """Until every actor is done or dead; each event may happen once, and `kills` actors may die.

        Raises:
            Redundant: an order that means the same was run before.
        """
        for actor in actors:
            self.start(actor)
        by_name: dict[str, Any] = {each.name: each for each in (*actors, *events)}
        begun: set[str] = set()
        try:
            for actor in actors:
                self.let_go(actor)  # to its first stop, which nobody sees
            for _ in range(STEPS_MAX):
                alive = [actor for actor in actors if not actor.done]
                if not alive:
                    break
                chosen = self._choose(self._options(alive, events, begun, kills=kills))
                begun.add(chosen.who)
                if chosen.what == "event":
                    self.trace.append(f"-- {chosen.who}")
                    by_name[chosen.who].work()
                    continue
                kills -= chosen.what == "kill"
                self.let_go(by_name[chosen.who], kill=chosen.what == "kill")
        finally:
            for actor in actors:
                if not actor.done:
                    actor.dismissed = True
                    self.let_go(actor)

    def _options(self, alive: list[Actor], events: list[Event], begun: set[str], *, kills: int) -> list[Option]:
        """What can happen next; of the actors that have not begun, only to the first."""
        able = alive
        if self.reduced:
            waiting = [actor for actor in alive if actor.name not in begun]
            able = [actor for actor in alive if actor not in waiting[1:]]
        options = [Option("step", actor.name, actor.touches) for actor in able]
        if kills:
            options += [Option("kill", actor.name, "ledger") for actor in able]
        return options + [Option("event", one.name, one.touches) for one in events if one.name not in begun]

    def start(self, actor: Actor) -> None:
        """Give the actor a thread, which waits to be let go on."""
        player = _idle.pop() if _idle else _Player()
        player.parts.put((self, actor))

    def let_go(self, actor: Actor, *, kill: bool = False) -> None:
        """Let the actor run up to its next stop or its end; or die where it stands."""
        if kill:
            actor.killed = True
            self.trace.append(f"{actor.name} KILLED")
        actor.go.release()
        if not self.back.acquire(timeout=STOP_SECONDS):
            raise Violation("stuck: " + "; ".join(self.trace))
        if actor.failure is not None:
            raise actor.failure

    def _choose(self, options: list[Option]) -> Option:
        index = len(self.taken)
        if all(option in self._asleep for option in options):
            raise Redundant
        choice = self.choices[index] if index < len(self.choices) else 0
        while options[choice] in self._asleep:
            choice += 1
        chosen = options[choice]
        self.taken.append(choice)
        self.options.append([option not in self._asleep for option in options])
        if self.reduced:
            seen = self._asleep | set(options[:choice])
            self._asleep = {option for option in seen if option.commutes_with(chosen)}
        return chosen

    def live(self, actor: Actor) -> None:
        """The actor's life, in the thread of this call."""
        _current.actor, _current.run = actor, self
        actor.go.acquire()
        try:
            actor.answer = actor.work()
            self.trace.append(f"{actor.name} answers {actor.answer}")
        except Killed:
            pass
        except BaseException as failure:
            actor.failure = failure
            connections.close_all()


class _Player(threading.Thread):
    """Play one actor after the other, over one connection: to make them takes most of a run's time."""

    def __init__(self) -> None:
        super().__init__(name="actor", daemon=True)
        self.parts: queue.SimpleQueue[tuple[Run, Actor] | None] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while (part := self.parts.get()) is not None:
            run, actor = part
            run.live(actor)
            _idle.append(self)
            actor.done = True
            run.back.release()
        connections.close_all()


_idle: list[_Player] = []
_witnesses: list[psycopg.Connection] = []


def dismiss_players() -> None:
    """End the threads and connections that no run uses."""
    while _witnesses:
        _witnesses.pop().close()
    while _idle:
        player = _idle.pop()
        player.parts.put(None)
        player.join()


def every_list(execute: Callable[[Run], None], *, runs_max: int, reduced: bool = True) -> int:
    """Execute under every list of choices; how many were run to their end.

    Raises:
        Violation: from `execute`, with the order; or there are more than `runs_max` lists.
    """
    choices: list[int] | None = []
    count = 0
    while choices is not None:
        run = Run(choices, reduced=reduced)
        try:
            _with_order(execute, run)
            count += 1
        except Redundant:
            pass
        if count > runs_max:
            raise AssertionError(f"more than {runs_max} orders; make the case smaller")
        choices = _following(run)
    return count


def _with_order(execute: Callable[[Run], None], run: Run) -> None:
    try:
        execute(run)
    except Violation:
        raise
    except AssertionError as broken:
        raise Violation(f"{broken}\nin the order:\n  " + "\n  ".join(run.trace)) from broken


def _following(run: Run) -> list[int] | None:
    """The next list in depth-first order; None after the last."""
    for index in reversed(range(len(run.taken))):
        for choice in range(run.taken[index] + 1, len(run.options[index])):
            if run.options[index][choice]:
                return [*run.taken[:index], choice]
    return None


def stopping_before(original: Any, *, touches: Callable[[], str]) -> Any:
    """The function, with a stop before it."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        stop(original.__name__, touches=touches())
        return original(*args, **kwargs)

    return wrapper
