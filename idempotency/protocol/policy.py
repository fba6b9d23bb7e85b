"""Policy of a keyed view: the options of `@idempotent`, the same on every door."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from idempotency.conf import Config, config, is_header_name, meant
from idempotency.errors import Problem, problem_response
from idempotency.modes import ATOMIC, Mode
from idempotency.protocol.atomic import AtomicExchange
from idempotency.protocol.exchange import Exchange
from idempotency.protocol.identity import identify, key_in_window
from idempotency.protocol.unkeyed import UnkeyedExchange
from idempotency.request import fingerprint

if TYPE_CHECKING:
    from idempotency.protocol.recovery import Phases

OnProblem = Callable[[Any, Problem], HttpResponseBase]
OnReplay = Callable[[Any, HttpResponseBase], HttpResponseBase | None]

REQUEST_ID_MAX = 64  # characters that the ledger stores


class Options(TypedDict, total=False):
    """Options of `@idempotent`; what each means stands at `Policy`."""

    mode: "Mode | Phases"
    required: bool | Callable[[Any], bool]
    wait: float
    lease: float
    lifetime: float
    header: str
    principal: Callable[[Any], str]
    ignore: Collection[str] | Callable[[Any], Any]
    redact: Collection[str]
    window: float
    on_problem: OnProblem
    on_replay: OnReplay


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Policy:
    """Options of one keyed view. What is None is as ``IDEMPOTENCY`` says.

    Attributes:
        mode: see `idempotency.modes`; or the `Phases` that the view responds with.
        required: False, or a function of the request that returns False: a call without a key runs unkeyed.
        wait: seconds that a concurrent duplicate waits for the first answer before 409.
        lease: seconds from the death of a phased handler's process until a retry takes over; the completer's runs
            have ``LEASE_SECONDS``.
        lifetime: seconds that an answer is replayed, at most ``BODY_SECONDS``; a later retry gets 410. 0: its
            bytes are not stored.
        header: name of the header with the key.
        principal: function of the request that names the caller, in place of ``PRINCIPAL``. One-time tokens are
            issued by the setting alone, so such a view takes those of anonymous callers only.
        ignore: JSON members (at any depth) and form fields that two copies of a request may differ in, or a
            function from a JSON body to the part of it that counts.
        redact: JSON members whose values are masked before the answer is stored; the first caller gets them.
        window: seconds in which an unkeyed repeat of the same caller, route and content counts as the same call
            (`idempotency.protocol.identity`); an anonymous caller still needs a key.
        on_problem: shows the key's problems, and the Problems that the view raises, as ``(request, problem)``. A
            refusal among them is stored and replayed like any answer.
        on_replay: called with the request and each answer that is a replay; may change or replace it.
        refuses_early: the door may refuse a call before its key is claimed (atomic only).

    Raises:
        TypeError: an option that cannot be honoured, named.
    """

    mode: "Mode | Phases" = ATOMIC
    required: bool | Callable[[Any], bool] | None = None
    wait: float | None = None
    lease: float | None = None
    lifetime: float | None = None
    header: str | None = None
    principal: Callable[[Any], str] | None = None
    ignore: Collection[str] | Callable[[Any], Any] | None = None
    redact: Collection[str] = ()
    window: float | None = None
    on_problem: OnProblem | None = None
    on_replay: OnReplay | None = None
    refuses_early: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any], *, refuses_early: bool = False) -> "Policy":
        """Read the options of a decorator.

        Raises:
            TypeError: an option is unknown or cannot be honoured; the message names it.
        """
        known = Options.__annotations__
        for name in options:
            if name not in known:
                raise TypeError(f"@idempotent has no option {name!r}; {meant(name, known)}")
        return cls(**options, refuses_early=refuses_early)

    def __post_init__(self) -> None:
        for option, fits, wanted in _wants(self):
            if not fits:
                raise TypeError(f"@idempotent({option}={getattr(self, option)!r}): {wanted}.")

    def open(self, request: HttpRequest, *, caller: Any) -> Exchange:
        """Open the exchange of this request, also as `request.idempotency`; nothing is claimed yet.

        Args:
            caller: the request that authentication has seen: REST framework's, where there is one.

        Raises:
            Problem: see `identify`.
        """
        exchange = self._exchange(request, caller) if config().enabled else None
        if exchange is None:
            exchange = UnkeyedExchange(mode=_plain(self.mode), handler=self._handler, config=self.config())
        if self.on_replay is not None:
            exchange.on_replay = partial(self.on_replay, caller)
        request.idempotency = exchange  # type: ignore[attr-defined]
        return exchange

    def _exchange(self, request: HttpRequest, caller: Any) -> Exchange | None:
        """Open the exchange of a key; None for a call that needs none."""
        named = identify(
            request, caller=caller, header=self.header_name, principal=self.principal, needs_key=self._needs_key
        )
        if named is None:
            return None
        scope, key = named
        content = fingerprint.canonical(request, ignore=config().ignore if self.ignore is None else self.ignore)
        if key is None:
            key = key_in_window(scope, content, seconds=self.window or 0)
        elif callable(key):
            key = key(content)
        phases = None if isinstance(self.mode, Mode) else self.mode
        return _strategy(self.mode)(
            scope=scope,
            key=key,
            content=content,
            request_id=str(getattr(request, "request_id", None) or "")[:REQUEST_ID_MAX],
            handler=self._handler,
            redact=(*self.redact, *phases.redact) if phases else tuple(self.redact),
            refuses_early=self.refuses_early,
            request=request,
            config=self.config(),
            lifetime=self.lifetime,
        )

    def pass_by(self, request: HttpRequest) -> None:
        """Give a call of a safe method what its handler may ask of it."""
        request.idempotency = UnkeyedExchange(mode=_plain(self.mode), config=config())  # type: ignore[attr-defined]

    def joins(self, request: HttpRequest) -> bool:
        """Let a handler join the call of a keyed one that calls it, e.g. by `super().post()`.

        Raises:
            RuntimeError: the modes differ, so this one would lack its transaction, or be inside one.
        """
        exchange: Exchange | None = getattr(request, "idempotency", None)
        if exchange is None or not exchange.is_handling:
            return False
        exchange.join(mode=_plain(self.mode), redact=tuple(self.redact))
        return True

    def show(self, request: Any, problem: Problem) -> HttpResponseBase:
        """Answer with a problem, as `on_problem` does, else with a problem document."""
        return (self.on_problem or _document)(request, problem)

    def config(self) -> Config:
        """Return the settings in force for this view."""
        settings = config()
        if self.wait is None and self.lease is None:
            return settings
        return replace(
            settings,
            wait_seconds=settings.wait_seconds if self.wait is None else self.wait,
            lease_seconds=settings.lease_seconds if self.lease is None else self.lease,
        )

    @property
    def header_name(self) -> str:
        """Name of the header with the key."""
        return self.header or config().header

    @property
    def _handler(self) -> str:
        return "" if isinstance(self.mode, Mode) else self.mode.name

    def _needs_key(self, request: Any) -> str:
        """Decide on a call without a key: ``"key"``, ``"window"`` or ``""`` (runs unkeyed)."""
        if self.window is not None:
            return "window"
        required = config().required if self.required is None else self.required
        return "key" if (required(request) if callable(required) else required) else ""


def _document(request: Any, problem: Problem) -> HttpResponseBase:
    return problem_response(problem, request)


def _wants(policy: Policy) -> list[tuple[str, bool, str]]:
    """List option, fitness and requirement of each."""
    return [
        ("mode", _is_mode(policy.mode), "give a Mode or Phases"),
        (
            "required",
            policy.required in (None, True, False) or callable(policy.required),
            "give a bool or a function",
        ),
        ("wait", _is_seconds(policy.wait), "give seconds, 0 or more"),
        ("lease", _is_seconds(policy.lease) and policy.lease != 0, "give seconds, more than 0"),
        ("lease", policy.lease is None or policy.mode is not Mode.ATOMIC, "only a phased handler has a lease"),
        ("lifetime", _is_seconds(policy.lifetime), "give seconds, 0 or more"),
        ("header", policy.header is None or is_header_name(policy.header), "give a header's name"),
        ("principal", policy.principal is None or callable(policy.principal), "give a function"),
        ("ignore", callable(policy.ignore) or _is_names(policy.ignore or ()), "give names, or a function"),
        ("redact", _is_names(policy.redact), "give a list of names"),
        ("window", _is_seconds(policy.window) and policy.window != 0, "give seconds, more than 0"),
        ("on_problem", policy.on_problem is None or callable(policy.on_problem), "give a function"),
        ("on_replay", policy.on_replay is None or callable(policy.on_replay), "give a function"),
    ]


def _is_seconds(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0)


def _is_names(value: Any) -> bool:
    return not isinstance(value, str) and all(isinstance(name, str) and name for name in value)


def _is_mode(value: Any) -> bool:
    if isinstance(value, Mode):
        return True
    from idempotency.protocol.recovery import Phases  # noqa: PLC0415  imported by who made one

    return isinstance(value, Phases)


def _plain(mode: "Mode | Phases") -> Mode:
    return mode if isinstance(mode, Mode) else mode.mode


def _strategy(mode: "Mode | Phases") -> type[Exchange]:
    if _plain(mode) is Mode.ATOMIC:
        return AtomicExchange
    from idempotency.protocol.phases import PhasedExchange  # noqa: PLC0415  atomic views need none of it

    return PhasedExchange
