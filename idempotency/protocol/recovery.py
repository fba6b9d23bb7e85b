"""Recovery points: steps of a phased handler, each stored, so that it resumes there.

A step ends with `NoOp` (go on with the next step), `RecoveryPoint` or `Response`. It may run again after a crash:
an atomic one only if it did not commit, an outside one also after its call; so it must ask, or use the same
number again. A retry with the same key resumes, and so does `idempotency.maintenance.completer` when no retry
comes. An example is in docs/how-to/call-a-provider.md.

The vocabulary is that of Brandur Leach, "Implementing Stripe-like Idempotency Keys in Postgres" (October 2017).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from idempotency import arguments, ledger
from idempotency.errors import PROBLEM_JSON, InProgress, problem_response
from idempotency.modes import Mode
from idempotency.postgres import home
from idempotency.protocol.execute import restore_tenant
from idempotency.protocol.phases import LeaseLost, PhasedExchange
from idempotency.protocol.unkeyed import UnkeyedExchange
from idempotency.response.answers import UNCERTAIN_STATUS, Verdict, verdict_on

T = TypeVar("T")

STEPS_MAX = 100  # a handler that walks in a circle is a fault of the program


@dataclass(frozen=True, slots=True)
class NoOp:
    """Result of a step that is done: go on with the next one, in the order of declaration."""


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """Result that goes on at `name`; `data` (JSON) is added to `progress.data`."""

    name: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    """Result that is the answer. 202: the outcome is unknown, and the entry resumes here.

    Only an outside step may say so: after an atomic one there would be no recovery point to resume from.
    """

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if type(self.status) is not int or not 100 <= self.status <= 599:
            raise TypeError(f"Response({self.status!r}, …) has no status of HTTP. Write Response(201, …).")

    def made(self) -> JsonResponse:
        content_type = PROBLEM_JSON if self.status >= 400 else "application/json"
        return JsonResponse(
            self.body, status=self.status, headers=dict(self.headers), safe=False, content_type=content_type
        )


StepResult = NoOp | RecoveryPoint | Response


@dataclass(slots=True)
class Progress:
    """Progress of a handler, as a step gets it.

    Attributes:
        data: the arguments of `respond`, and the additions of the steps before; JSON.
        key_digest: names the key; the same in every run, so ids can be derived from it.
        resumed: an earlier run of this handler ended unfinished.
    """

    data: dict[str, Any]
    key_digest: str
    resumed: bool


StepExchange = PhasedExchange | UnkeyedExchange  # a call without a key may run steps too
Step = Callable[[Progress], StepResult]
Undo = Callable[[Progress], None]

declared: dict[str, "Phases"] = {}  # by name, of the modules that have been imported


class NotAbandonable(Exception):
    """Error of steps that cannot be undone; its message explains why to the operator."""


class Phases:
    """Steps of one handler, as declared, by the recovery point at which each starts.

    Args:
        name: unique in the project and never changed: entries in the ledger carry it. At most 96 characters.
        redact: as for `idempotent`; unlike the view's own, the completer knows of it.
    """

    mode = Mode.PHASED

    def __init__(self, name: str, *, redact: tuple[str, ...] = ()) -> None:
        if name in declared:
            raise ValueError(f"There are Phases named {name!r} already.")
        self.name = arguments.name("The name of Phases", name)
        self.redact = redact
        self._steps: dict[str, tuple[Step, bool]] = {}
        self._undo: Undo = lambda progress: None
        declared[name] = self

    def atomic(self, point: str) -> Callable[[Step], Step]:
        """Declare a step that only writes to our database and commits with its recovery point."""
        return self._declare(point, in_transaction=True)

    def outside(self, point: str) -> Callable[[Step], Step]:
        """Declare a step that calls the outside world, with no transaction open."""
        return self._declare(point, in_transaction=False)

    def on_abandon(self, undo: Undo) -> Undo:
        """Declare a function that undoes the steps where an operator abandons the entry.

        It runs in the transaction that closes the entry, and raises `NotAbandonable` where they cannot be undone.
        Without it only the entry is closed, and a timer, say, goes on with what the steps committed.
        """
        self._refuse_async(undo)
        self._undo = undo
        return undo

    def abandon(self, progress: Progress) -> None:
        """Undo the committed steps of an entry, inside the transaction that closes it.

        Raises:
            NotAbandonable: see `on_abandon`.
        """
        _of_one_tenant(self._undo, progress)

    def respond(self, request: HttpRequest, data: Mapping[str, Any]) -> HttpResponseBase:
        """Run the steps from the last recovery point; `data` counts the first time only.

        Raises:
            RuntimeError: the view is not under `@idempotent(mode=<these Phases>)`.
        """
        exchange = getattr(request, "idempotency", None)
        if not isinstance(exchange, StepExchange) or exchange.handler != self.name:
            raise RuntimeError(f"The view must be decorated with @idempotent(mode=…) of the Phases {self.name!r}.")
        try:
            return self.run(exchange, data)
        except LeaseLost:
            # finishing with this loses too, and then gives the winner's answer, if there is one
            return problem_response(InProgress(), request)

    def run(self, exchange: StepExchange, data: Mapping[str, Any]) -> HttpResponseBase:
        """Run the steps as `respond` does, without a request.

        Raises:
            LeaseLost: nothing of the step that noticed it remains in our database.
        """
        point = exchange.recovery_point or next(iter(self._steps), "")
        progress = Progress(
            data=dict(exchange.recovery_data or data), key_digest=exchange.key_digest, resumed=exchange.resumed
        )
        _, in_transaction = self._at(point)
        if not (exchange.recovery_point or in_transaction):
            self._mark(exchange, point, progress)  # store the arguments before the outside is called
        for _ in range(STEPS_MAX):
            step, in_transaction = self._at(point)
            run_step = self._step_inside if in_transaction else self._step_outside
            following = run_step(exchange, step, point, progress)
            if not isinstance(following, str):
                return following
            point = following
        raise RuntimeError(f"The Phases {self.name!r} did not end within {STEPS_MAX} steps.")

    def _declare(self, point: str, *, in_transaction: bool) -> Callable[[Step], Step]:
        def declare(step: Step) -> Step:
            self._refuse_async(step)
            arguments.name("A recovery point", point, 64)
            if point in self._steps:
                raise ValueError(f"The Phases {self.name!r} have a step at {point!r} already.")
            self._steps[point] = (step, in_transaction)
            return step

        return declare

    def _refuse_async(self, function: Callable[..., Any]) -> None:
        if iscoroutinefunction(function):  # nobody would await it
            raise TypeError(
                f"{function.__qualname__} of the Phases {self.name!r} is async. Write def, async_to_sync inside."
            )

    def _at(self, point: str) -> tuple[Step, bool]:
        """Find the step at a point, and whether it runs in a transaction."""
        try:
            return self._steps[point]
        except KeyError:
            raise RuntimeError(f"The Phases {self.name!r} have no step at {point!r}.") from None

    def _step_inside(
        self, exchange: StepExchange, step: Step, point: str, progress: Progress
    ) -> str | HttpResponseBase:
        with transaction.atomic(home.alias(), durable=True):
            result = _of_one_tenant(step, progress)
            if not isinstance(result, Response):
                return self._remember(exchange, result, point, progress)
            if result.status == UNCERTAIN_STATUS:
                raise RuntimeError(
                    f"The atomic step {point!r} of {self.name!r} answered 202, as only an outside step may. End "
                    "it with a RecoveryPoint, and let an outside step there answer."
                )
            response = result.made()
            if verdict_on(result.status) is not Verdict.EFFECT:
                transaction.set_rollback(True, home.alias())  # a refusal undoes its step
                return response
            if not exchange.complete(response):
                raise LeaseLost
        exchange.committed(response)
        return response

    def _step_outside(
        self, exchange: StepExchange, step: Step, point: str, progress: Progress
    ) -> str | HttpResponseBase:
        result = _of_one_tenant(step, progress)
        if isinstance(result, Response):
            return result.made()
        return self._remember(exchange, result, point, progress)

    def _remember(
        self, exchange: StepExchange, result: NoOp | RecoveryPoint, point: str, progress: Progress
    ) -> str:
        if isinstance(result, RecoveryPoint):
            following = result.name
            progress.data.update(result.data)
        elif isinstance(result, NoOp):
            points = [*self._steps, ""]
            following = points[points.index(point) + 1]
        else:  # such as a JsonResponse that refuses: going on would do what it refused
            raise TypeError(
                f"The step {point!r} of {self.name!r} returned {type(result).__name__}. Return NoOp(), "
                "RecoveryPoint(…) or Response(…) of `idempotency`."
            )
        self._at(following)
        self._mark(exchange, following, progress)
        return following

    def _mark(self, exchange: StepExchange, point: str, progress: Progress) -> None:
        if isinstance(exchange, UnkeyedExchange):
            return
        assert exchange.run is not None  # noqa: S101  a handler of steps never runs without the right to
        marked = ledger.mark_point(
            exchange.run,
            point=point,
            data=progress.data,
            subject=exchange.subject,
            lease_seconds=exchange.lease_seconds,
        )
        if not marked:
            raise LeaseLost


def _of_one_tenant(function: Callable[[Progress], T], progress: Progress) -> T:
    database = home.connection()
    tenant = getattr(database, "tenant", None)
    try:
        return function(progress)
    finally:
        restore_tenant(database, tenant)
