"""`assert_once`: five trials of a keyed view, and what a failure says."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from numbers import Number
from typing import Any
from uuid import uuid4

from django.test import Client

from idempotency.conf import config
from idempotency.models import LedgerEntry, State
from idempotency.postgres import home
from idempotency.testing.calls import sender
from idempotency.testing.clients import nothing_remembered
from idempotency.testing.faults import at_once, commits_fail, dead_after_commit, redis_lost

IN_PROGRESS = 409
SHOWN_MAX = 300  # bytes of an answer in a sentence


def assert_once(
    view: Any,
    request: Any,
    *,
    effects: Callable[[], int],
    client: Client | None = None,
    copies: int = 8,
    header: str | None = None,
    **post: Any,
) -> None:
    """Fail unless a view's effect happens once a key: at once, after a crash, without Redis.

    Each of the five trials sends the request under a fresh key: twice; from threads at once; again after its
    commit failed; again after the process died between the commit and the answer; and again after Redis, and
    every cache, lost everything.

    Args:
        view: a view, called with copies of `request`; or an address, to which `client` posts.
        request: of a `RequestFactory`; for an address, the data to post. A function makes one for each trial,
            where the view takes a request once whatever its key.
        effects: counts what the view has done, such as ``Order.objects.count``.
        client: for an address; None: one that is not logged in.
        copies: number of the parallel ones.
        header: name of the header with the key, where the view has one of its own.
        post: further arguments of the client's `post`, such as ``content_type``.

    Raises:
        AssertionError: it happened more or less than once, or a copy got another answer.
        RuntimeError: the test has a transaction open, or ENABLED is False.
    """
    _refuse_unfit()
    with nothing_remembered():
        send = partial(sender, view, client=client or Client(), header=header or config().header, post=post)
        trial = Trial(send, request, effects=effects)
        trial.one_after_another()
        trial.in_parallel(copies)
        trial.after_a_failed_commit()
        trial.after_a_crash()
        trial.without_redis()


def _refuse_unfit() -> None:
    if home.connection().in_atomic_block:
        raise RuntimeError(
            "assert_once sends copies from threads, which see nothing of this test's transaction. Use "
            "TransactionTestCase, or @pytest.mark.django_db(transaction=True)."
        )
    if not config().enabled:
        raise RuntimeError("IDEMPOTENCY['ENABLED'] is False, so nothing is keyed. Run assert_once with it on.")


@dataclass(frozen=True, slots=True)
class Call:
    """Call under a key; each `send` sends a copy of it and returns the answer."""

    key: str
    send: Callable[[], Any]


class Trial:
    """Trials of one view.

    Attributes:
        per_call: effects of one call, as the first trial saw them.
        status: its answer's status.
    """

    per_call = 0
    status = 0

    def __init__(self, sender: Callable[..., Any], request: Any, *, effects: Callable[[], int]) -> None:
        self._sender = sender
        self._request = request
        self._effects = effects
        self._before = 0

    def one_after_another(self) -> None:
        call = self._begin()
        first = call.send()
        self.per_call, self.status = self._happened(), first.status_code
        if self.per_call < 1 or self.status >= 400:
            raise AssertionError(
                f"The first call was answered {_shown(first)} and had {_effects(self.per_call)}. Give assert_once "
                "a request that succeeds, and count in `effects` what it does."
            )
        again = call.send()
        self._judge(call, "2 copies with one key, one after the other")
        self._same("The retry", again)

    def in_parallel(self, copies: int) -> None:
        call = self._begin()
        found = at_once(call.send, copies)
        after = call.send()
        self._judge(call, f"{copies} parallel copies with one key")
        for each in found:
            if isinstance(each, Exception):
                raise AssertionError(f"A parallel copy raised {type(each).__name__}: {each}") from each
            self._same("A parallel copy", each, may_wait=True)
        self._same("A retry after parallel copies", after)

    def after_a_failed_commit(self) -> None:
        call = self._begin()
        with commits_fail(), suppress(Exception):  # the effects are counted
            call.send()
        with redis_lost():  # it may hold its key there still
            again = call.send()
        self._judge(call, "a call whose commit failed, and of its retry")
        self._same("The retry after a failed commit", again)

    def after_a_crash(self) -> None:
        call = self._begin()
        with dead_after_commit(call.send, has_counted=lambda: self._happened() > 0 or _is_answered(call)):
            again = call.send()
            is_open = again.status_code == IN_PROGRESS  # of a phased call, until its lease ends
            if self._happened() > self.per_call or not is_open:
                self._judge(call, "a call whose process died after the commit, and of its retry")
        self._same("The retry after a crash", again, may_wait=True)

    def without_redis(self) -> None:
        call = self._begin()
        call.send()
        with redis_lost():
            again = call.send()
        self._judge(call, "a call and its retry, between which Redis lost everything")
        self._same("The retry after Redis lost everything", again)

    def _begin(self) -> Call:
        """Make a call under a fresh key; what happens from now on is counted."""
        key, request = uuid4().hex, self._request() if callable(self._request) else self._request
        self._before = self._count()
        return Call(key, self._sender(request, key=key))

    def _count(self) -> int:
        count = self._effects() if callable(self._effects) else None
        if not isinstance(count, Number):  # a sum of money too
            raise TypeError(
                "`effects` is a function that returns a number, such as Order.objects.count, and not "
                f"{self._effects!r}."
            )
        return count

    def _happened(self) -> int:
        return self._count() - self._before

    def _judge(self, call: Call, what: str) -> None:
        happened = self._happened()
        if happened == self.per_call:
            return
        usual = "" if self.per_call == 1 else f" (one call has {self.per_call})"
        raise AssertionError(
            f"{_effects(happened)} of {what}{usual}: {_cause(call, lost=happened < self.per_call)}"
        )

    def _same(self, what: str, answer: Any, *, may_wait: bool = False) -> None:
        if answer.status_code == self.status or (may_wait and answer.status_code == IN_PROGRESS):
            return
        raise AssertionError(f"{what} was answered {_shown(answer)}, and the first call {self.status}.")


def _is_answered(call: Call) -> bool:
    return LedgerEntry.objects.filter(key=call.key, state=State.FINISHED).exists()


def _shown(answer: Any) -> str:
    """Show an answer's status, and the beginning of its text if it has one."""
    text = "" if answer.streaming else answer.content[:SHOWN_MAX].decode(errors="replace")
    return f"{answer.status_code} ({text})" if text else str(answer.status_code)


def _effects(count: int) -> str:
    return f"{count} effect{'' if count == 1 else 's'}"


def _cause(call: Call, *, lost: bool) -> str:
    """Explain a wrong number of effects, and what to change; by what the ledger has of the key."""
    if not LedgerEntry.objects.filter(key=call.key).exists():
        return (
            "the ledger has no row of the key, so the view is not keyed, or by something that forgets. Put "
            "@idempotent on it, or name its path in IDEMPOTENCY['KEYED']."
        )
    if lost:
        return (
            "the ledger has the answer, but an effect comes after the commit and is lost with the process. Move "
            "it into the keyed view, whose transaction it then shares."
        )
    return (
        "the ledger has one answer for all, so an effect is outside of the keyed view's transaction: in a "
        "decorator or middleware, or in another database, connection or service. Move it into the view and its "
        "transaction."
    )
