"""Misbehaviour on request, by `POST /_control/faults` (docs/reference/sandbox-faults.md)."""

import random
import socket
import threading
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse

from payments.sandbox import state
from payments.sandbox.server import SOCKET

# fault -> its value at rest, and the range of others; true is a value of every fault
_FAULTS: dict[str, tuple[Any, float, float]] = {
    "duplicates": (0, 0, 100),
    "parallel": (0, 0, 64),
    "delay_ms": (0, 0, 600_000),
    "reorder": (False, 0, 1),
    "drop_rate": (0.0, 0, 1),
    "timeout_after_success": (False, 0, 1_000_000),
    "http_500_rate": (0.0, 0, 1),
    "wrong_amount": (False, -1_000_000, 1_000_000),
    "wrong_currency": (False, 0, 1),
    "wrong_seller": (False, 0, 1),
    "pay_closed": (False, 0, 1),
    "user_paying": (False, 0, 1),
    "refund_429": (False, 0, 1),
    "not_enough": (False, 0, 1),
    "refund_abnormal": (False, 0, 1),
    "hold_answers": (False, 0, 1),
    "seed": (0, -(2**63), 2**63),
}
NONE: dict[str, Any] = {name: rest for name, (rest, _, _) in _FAULTS.items()}

WRONG_AMOUNT_MORE_MINOR = 100
WRONG_SELLERS = {"wechat": "1999999999", "alipay": "2088999999999999", "paypal": "WRNGPAYEE2345"}
HELD_SECONDS_MAX = 20.0

dice = random.Random(0)  # noqa: S311  misbehaviour need not be unguessable
# thrown at the sending thread's own times: must not shift the throws of the other dice
reorder_dice = random.Random(0)  # noqa: S311
_dice_lock = threading.Lock()
_timeout_lock = threading.Lock()


def current() -> dict[str, Any]:
    return {**NONE, **state.store().kept_of("faults")}


def change(wanted: dict[str, Any]) -> dict[str, Any]:
    """Set the named faults, or end all where none is named; return all of them.

    Raises:
        ValueError: a name or value that is not in the table; nothing was changed.
    """
    for name, value in wanted.items():
        if name not in NONE:
            raise ValueError(f"{name!r} is not a fault; known are {', '.join(sorted(NONE))}")
        if not isinstance(value, bool | int | float):
            raise ValueError(f"{name} must be a number or a truth value")
        _, low, high = _FAULTS[name]
        if not low <= value <= high:
            raise ValueError(f"{name} must be between {low} and {high}")
    wanted = wanted or NONE
    state.store().keep("faults", **wanted)
    faults = current()
    if not faults["hold_answers"]:
        release()
    if "seed" in wanted:
        seed_dice()
    return faults


def seed_dice() -> None:
    """Restart the dice from the seed that is set, also one of an earlier process."""
    seed = int(current()["seed"])
    with _dice_lock:
        dice.seed(seed)
        reorder_dice.seed(seed)


def happens(rate: float) -> bool:
    with _dice_lock:
        return rate > 0 and dice.random() < rate


def number(fault: str, *, if_true: int) -> int:
    """Return a fault's number, at least 1; `if_true` where it is only turned on."""
    value = current()[fault]
    return if_true if value is True else max(1, int(value))


def charged_minor(asked: int) -> int:
    """Return the amount that is charged where `asked` was asked for."""
    wrong = current()["wrong_amount"]
    if not wrong:
        return asked
    charged = asked if wrong is True else asked + int(wrong)
    return charged if charged > 0 and charged != asked else asked + WRONG_AMOUNT_MORE_MINOR


def charged_currency(asked: str) -> str:
    """Return the currency that is charged where `asked` was asked for."""
    if not current()["wrong_currency"]:
        return asked
    return "USD" if asked != "USD" else "EUR"


def wrong_seller(channel: str) -> str:
    """Return the account that the money of `channel` goes to instead of ours; empty: ours."""
    return WRONG_SELLERS.get(channel, "") if current()["wrong_seller"] else ""


_held: set[threading.Event] = set()  # one for each answer that waits for its release
_held_lock = threading.Lock()


def _hold() -> None:
    mine = threading.Event()
    with _held_lock:
        _held.add(mine)
    mine.wait(HELD_SECONDS_MAX)
    with _held_lock:
        _held.discard(mine)


def release() -> int:
    """Free the answers that wait by now, and return their number."""
    with _held_lock:
        released = len(_held)
        while _held:
            _held.pop().set()
    return released


class FaultMiddleware:
    """Faults of calls to the platforms; control calls and pages always work."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        is_call = request.path.startswith(
            ("/wechat/v3/", "/stripe/v1/", "/paypal/v2/", "/paypal/v1/reporting/")
        ) or (request.path == "/alipay/gateway.do" and request.GET.get("method") != "alipay.trade.page.pay")
        if not is_call:
            return self.get_response(request)
        if happens(current()["http_500_rate"]):
            return JsonResponse({"code": "SYSTEM_ERROR", "message": "sandbox: http_500_rate"}, status=500)
        response = self.get_response(request)
        changes = getattr(request, "changes_something", request.method != "GET")
        if changes and current()["hold_answers"]:
            _hold()
        if changes and response.status_code < 300 and _answer_is_lost():
            _hang_up(request)
        return response


def _answer_is_lost() -> bool:
    with _timeout_lock:
        left = current()["timeout_after_success"]
        if not left:
            return False
        if left is not True:
            change({"timeout_after_success": max(0, left - 1)})
        return True


def _hang_up(request: HttpRequest) -> None:
    """Drop the connection without an answer, as a network does."""
    connection = request.META.get(SOCKET)
    if connection is not None:
        connection.shutdown(socket.SHUT_RDWR)
