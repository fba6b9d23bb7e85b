"""Misbehaviour on request (docs/contract.md, 4, `POST /_control/faults`).

==================== ==================== =========================================================
fault                value                effect
==================== ==================== =========================================================
duplicates           0…100                each notification is sent so many times; 0 and 1 are once
parallel             0…64 or true         so many senders at once; 0 and 1 one after the other
delay_ms             0…600000             a notification waits so long before it is sent
reorder              true/false           notifications that are due are sent in a random order
drop_rate            0…1                  this part of all copies is lost for good
timeout_after_success true/false or count a call that changes something takes effect, its answer never comes;
                                          a count wears off
http_500_rate        0…1                  this part of all calls is answered 500 and does nothing
wrong_amount         true/false           the shopper is charged one yuan more than asked for
wrong_seller         true/false           the shopper's money goes to another merchant's account: notification and
                                          query name that one, and our bills, refunds and (at Alipay, whose
                                          answers name no seller) queries know no such payment; not at Stripe,
                                          where an intent belongs to the account that opened it
pay_closed           true/false           a payment was on its way when its trade was closed or ran out of time:
                                          paying such a trade charges; not at Stripe, where canceled is final
user_paying          true/false           WeChat answers a closing 202 USER_PAYING and does nothing: the shopper is
                                          about to pay
refund_429           true/false           WeChat answers a refund 429 FREQUENCY_LIMITED and does nothing
not_enough           true/false           our account at WeChat or Alipay has too little for a refund
refund_abnormal      true/false           WeChat's refunds leave our account and do not reach the shopper; once it
                                          is off, a person has sent them on. Stripe's are pending, as its bill
                                          says too; once it is off, they have succeeded
hold_answers         true/false           a call that changes something takes effect, its answer is held back
                                          until `POST /_control/release`, 20 s at most
seed                 integer              seeds the dice of all of these, also each time it is set to the same, and
                                          when the sandbox starts
==================== ==================== =========================================================
"""

import random
import socket
import threading
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse

from payments.sandbox import state
from payments.sandbox.server import SOCKET

NONE: dict[str, Any] = {
    "duplicates": 0,
    "parallel": 0,
    "delay_ms": 0,
    "reorder": False,
    "drop_rate": 0.0,
    "timeout_after_success": False,
    "http_500_rate": 0.0,
    "wrong_amount": False,
    "wrong_seller": False,
    "pay_closed": False,
    "user_paying": False,
    "refund_429": False,
    "not_enough": False,
    "refund_abnormal": False,
    "hold_answers": False,
    "seed": 0,
}

_LIMITS = {
    "duplicates": (0, 100),
    "parallel": (0, 64),
    "delay_ms": (0, 600_000),
    "drop_rate": (0, 1),
    "http_500_rate": (0, 1),
    "timeout_after_success": (0, 1_000_000),
    "seed": (-(2**63), 2**63),
}
WRONG_AMOUNT_MORE_MINOR = 100
WRONG_SELLERS = {"wechat": "1999999999", "alipay": "2088999999999999"}
HELD_SECONDS_MAX = 20.0

dice = random.Random(0)  # noqa: S311  misbehaviour need not be unguessable
# thrown at the sending thread's own times: must not shift the throws of the other dice
reorder_dice = random.Random(0)  # noqa: S311
_dice_lock = threading.Lock()
_timeout_lock = threading.Lock()


class UnknownFault(ValueError):
    """A name or value that is not in the table."""


def current() -> dict[str, Any]:
    """Return every fault with its value."""
    return {**NONE, **state.store().faults()}


def change(wanted: dict[str, Any]) -> dict[str, Any]:
    """Set the named faults, leave the rest, and return all of them.

    Raises:
        UnknownFault: nothing was changed.
    """
    for name, value in wanted.items():
        if name not in NONE:
            raise UnknownFault(f"{name!r} is not a fault; known are {', '.join(sorted(NONE))}")
        if not isinstance(value, bool | int | float):
            raise UnknownFault(f"{name} must be a number or a truth value")
        low, high = _LIMITS.get(name, (0, 1))
        if not low <= value <= high:
            raise UnknownFault(f"{name} must be between {low} and {high}")
    faults = {**current(), **wanted}
    state.store().set_faults(faults)
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
    """Throw the dice."""
    with _dice_lock:
        return rate > 0 and dice.random() < rate


def copies() -> int:
    """Return the number of times that a notification is sent."""
    return max(1, int(current()["duplicates"]))


def senders() -> int:
    """Return the number of notifications that are sent at once."""
    parallel = current()["parallel"]
    return 16 if parallel is True else max(1, int(parallel))


def wrong_seller(channel: str) -> str:
    """Return the account that the money of `channel` goes to instead of ours; empty: ours."""
    return WRONG_SELLERS.get(channel, "") if current()["wrong_seller"] else ""


class _Held:
    """Answers that wait for their release; a release frees those that wait by then, not later ones."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting = 0
        self._releases = 0

    def wait(self) -> None:
        with self._changed:
            before = self._releases
            self._waiting += 1
            if not self._changed.wait_for(lambda: self._releases != before, timeout=HELD_SECONDS_MAX):
                self._waiting -= 1

    def release(self) -> int:
        with self._changed:
            released, self._waiting = self._waiting, 0
            self._releases += 1
            self._changed.notify_all()
            return released


_held = _Held()


def release() -> int:
    """Let every held answer go and return their number."""
    return _held.release()


class FaultMiddleware:
    """Faults of calls to the platforms; control calls and pages always work."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        is_call = request.path.startswith(("/wechat/v3/", "/stripe/v1/")) or (
            request.path == "/alipay/gateway.do" and request.GET.get("method") != "alipay.trade.page.pay"
        )
        if not is_call:
            return self.get_response(request)
        if happens(current()["http_500_rate"]):
            return JsonResponse({"code": "SYSTEM_ERROR", "message": "sandbox: http_500_rate"}, status=500)
        response = self.get_response(request)
        changes = getattr(request, "changes_something", False)
        if changes and current()["hold_answers"]:
            _held.wait()
        if changes and response.status_code < 300 and _answer_is_lost():
            _hang_up(request)
        return response


def _answer_is_lost() -> bool:
    with _timeout_lock:
        left = current()["timeout_after_success"]
        if not left:
            return False
        if left is not True:
            change({"timeout_after_success": left - 1})
        return True


def _hang_up(request: HttpRequest) -> None:
    """Drop the connection without an answer, as a network does."""
    connection = request.META.get(SOCKET)
    if connection is not None:
        connection.shutdown(socket.SHUT_RDWR)
