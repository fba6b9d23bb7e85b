"""Options of `@idempotent`, and what fits each."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypedDict

from django.http.response import HttpResponseBase

from idempotency.arguments import is_function
from idempotency.conf.readers import UP_TO, is_header_name, is_names, is_number
from idempotency.errors import Problem
from idempotency.modes import Mode

if TYPE_CHECKING:
    from idempotency.protocol.recovery import Phases

OnProblem = Callable[[Any, Problem], HttpResponseBase]
OnReplay = Callable[[Any, HttpResponseBase], HttpResponseBase | None]


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


def refuse_unfit(policy: Any) -> None:
    """Check the options of a `Policy`. Raises TypeError: one cannot be honoured, named."""
    for option, fits, wanted in _wants(policy):
        if not fits:
            raise TypeError(f"@idempotent({option}={getattr(policy, option)!r}): {wanted}.")


def _wants(policy: Any) -> list[tuple[str, bool, str]]:
    """List option, fitness and requirement of each."""
    function = "give a function without async"
    return [
        ("mode", _is_mode(policy.mode), "give a Mode or Phases"),
        (
            "required",
            policy.required in (None, True, False) or is_function(policy.required),
            f"{function}, or a bool",
        ),
        ("wait", _is_seconds(policy.wait), f"give seconds, 0 or more, {UP_TO}"),
        ("lease", _is_seconds(policy.lease) and policy.lease != 0, f"give seconds, more than 0, {UP_TO}"),
        ("lease", policy.lease is None or policy.mode is not Mode.ATOMIC, "only a phased handler has a lease"),
        ("lifetime", _is_seconds(policy.lifetime), f"give seconds, 0 or more, {UP_TO}"),
        (
            "header",
            policy.header is None or is_header_name(policy.header),
            "give one with no other meaning",
        ),
        ("principal", policy.principal is None or is_function(policy.principal), function),
        ("ignore", is_function(policy.ignore) or is_names(policy.ignore or ()), f"{function}, or names"),
        ("redact", is_names(policy.redact), "give a list of names"),
        ("window", _is_seconds(policy.window) and policy.window != 0, f"give seconds, more than 0, {UP_TO}"),
        ("on_problem", policy.on_problem is None or is_function(policy.on_problem), function),
        ("on_replay", policy.on_replay is None or is_function(policy.on_replay), function),
    ]


def _is_seconds(value: Any) -> bool:
    return value is None or is_number(value)


def _is_mode(value: Any) -> bool:
    if isinstance(value, Mode):
        return True
    from idempotency.protocol.recovery import Phases  # noqa: PLC0415  imported by who made one

    return isinstance(value, Phases)
