"""Door for functions without HTTP: tasks, commands, signal receivers, consumers.

    from idempotency import once

    receipt = once("orders.receipt", key=order.pk, payload={"to": address}).run(write_receipt, order)

The protocol is that of a keyed view, and a result is stored like the answer of one: JSON, with status 200.
"""

import json
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from inspect import Parameter, Signature, isawaitable, signature, unwrap
from typing import Any, Literal, TypeVar, cast
from uuid import UUID

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpResponse
from django.http.response import HttpResponseBase

from idempotency.arguments import bounded
from idempotency.call import NAME, KeyedCall, arguments_by_name, first_missing, refuse_deferred, takes_call
from idempotency.conf import config
from idempotency.errors import Problem, explaining_missing_tables
from idempotency.observability import logs
from idempotency.protocol.atomic import AtomicExchange
from idempotency.protocol.exchange import Exchange
from idempotency.protocol.execute import execute, execute_async
from idempotency.protocol.phases import PhasedExchange
from idempotency.protocol.policy import config_with
from idempotency.protocol.unkeyed import UnkeyedExchange
from idempotency.request import keys

T = TypeVar("T")
Key = str | int | UUID
NAME_MAX = 96  # characters of a name, or a tenant's: with a principal they fit the ledger's scope

_places_of_tasks: dict[str, list[str]] = {}  # name of a `once.task` → its function, by module and by file


class once:  # noqa: N801  a verb where it is called, as `contextlib.suppress`
    """Call that happens once per name and key; every copy of it gets the result of the first.

    Atomic by default: the function's writes, the ledger row and the result are one transaction, opened here. With
    `lease` none is open, and the function may call outside. If its process dies, a copy runs it again, so it must
    ask what became of the earlier call (`call.resumed`), or use the same number again (`call.key_digest`).

    Args:
        name: of the operation, such as ``orders.place``: 1..96 visible ASCII characters, and never changed.
        key: of this call, the same in every copy: 1..255 visible ASCII characters. An int or a UUID is its text.
        payload: content, any JSON value; the same key with another payload is refused. Without one the key alone
            names the call, whatever the function and its arguments.
        lease: seconds after the death of its process in which no copy takes over; renewed while the process lives.
        wait: seconds to wait for a copy that is running; None: ``IDEMPOTENCY["WAIT_SECONDS"]``.
        principal: on whose behalf; the same key of another principal is another call.
        tenant: the same for tenants that share a ledger.

    Raises:
        TypeError: a key of another type, or a payload that is not JSON.
        ValueError: a text or a number out of range, or no number.
    """

    def __init__(
        self,
        name: str,
        *,
        key: Key,
        payload: Any = None,
        lease: float | None = None,
        wait: float | None = None,
        principal: str = "",
        tenant: str = "",
    ) -> None:
        if isinstance(key, bool) or not isinstance(key, Key):
            raise TypeError(f"The key of once({name!r}) must be a str, an int or a UUID, not {key!r}.")
        _refuse_text("name", name, NAME_MAX)
        _refuse_text(f"key of once({name!r})", str(key))
        if principal:
            _refuse_text(f"principal of once({name!r})", principal)
        if tenant:
            _refuse_text(f"tenant of once({name!r})", tenant, NAME_MAX)
        self.name = name
        self._key = str(key)
        self._scope = keys.function_scope_of(name=name, principal=principal, tenant=tenant)
        self._content = _content_of(name, payload)
        self._strategy: type[Exchange] = AtomicExchange if lease is None else PhasedExchange
        self._lease = None if lease is None else bounded("lease", lease)
        self._wait = None if wait is None else bounded("wait", wait, or_zero=True)

    def run(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call `fn`, or return what its first call under this key returned, as JSON gives it back.

        An exception of `fn` passes through and nothing is stored: the same key may try again.

        Args:
            fn: returns a JSON value. If it names a parameter `call`, it gets the `KeyedCall` there.

        Raises:
            InProgress: a copy is running.
            KeyReused: the key belongs to a call with another payload.
            Problem: an operator has abandoned the call.
            ResultExpired: it was completed, and the result is purged or was too large to store.
            RuntimeError: a transaction is open.
            TypeError: the result is not JSON; nothing is committed.

        Transaction: its own, which must be the outermost one; none with a lease.
        """
        if iscoroutinefunction(fn):
            raise TypeError(f"{fn!r} is a coroutine function. Write `await once(…).arun(…)`.")
        with logs.restored(), explaining_missing_tables():
            exchange = self._open()
            function = _taking_call(fn, exchange)
            answer = execute(exchange, lambda: self._answer(function(*args, **kwargs)), rewind=_again)
        result: T = _result(answer)
        return result

    async def arun(self, fn: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        """Await `fn` as `run` calls it; its queries share one thread and so the transaction.

        A caller that is cancelled is so when the call has ended.
        """
        exchange: Exchange | None = None

        async def begin() -> Exchange:
            nonlocal exchange
            exchange = await sync_to_async(self._open)()
            return exchange

        async def handler() -> HttpResponseBase:
            made = _taking_call(fn, exchange)(*args, **kwargs)
            if not isawaitable(made):
                raise TypeError(f"{fn!r} returned no awaitable. Write `await sync_to_async(once(…).run)(…)`.")
            return self._answer(await made)

        with explaining_missing_tables():
            result: T = _result(await execute_async(begin, handler, rewind=_again))
        return result

    @staticmethod
    def task(
        name: str,
        *,
        key: Callable[..., Key],
        payload: Callable[..., Any] | Literal["arguments"] | None = "arguments",
        lease: float | None = None,
        wait: float | None = None,
        principal: Callable[..., str] | None = None,
        tenant: Callable[..., str] | None = None,
    ) -> Callable[[Callable[..., T]], Callable[..., T]]:
        """Make each call of a function, sync or async, `once(name, key=…).run(function, …)`.

        Put it below the decorator of a task queue. `key`, `payload`, `principal` and `tenant` are functions of the
        call's arguments, by name: each gets those that it names.

        Args:
            payload: ``"arguments"``: those of the call that differ from their defaults, which must be JSON; None:
                none, so that the key alone distinguishes two calls.

        Raises:
            TypeError: at decoration, for a task of a queue, an argument that the function has not, or the name of
                another task.
            ValueError: at decoration, as `once`.
        """
        once(name, key="any", lease=lease, wait=wait)  # for its refusals

        def decorate(function: Any) -> Any:
            refuse_deferred(function, f"@once.task({name!r})")
            whole = signature(function)
            taken = whole.replace(parameters=[one for one in whole.parameters.values() if one.name != NAME])
            _refuse_taken(name, function)
            choices = {"key": key, "payload": payload, "principal": principal, "tenant": tenant}
            choosers = {
                of: _chooser(name, of, choice, taken)
                for of, choice in choices.items()
                if choice is not None or of == "key"
            }

            def keyed(*args: Any, **kwargs: Any) -> once:
                given = arguments_by_name(taken, args, kwargs)
                chosen = {of: choose(given) for of, choose in choosers.items()}
                return once(name, lease=lease, wait=wait, **chosen)

            @wraps(function)
            def run(*args: Any, **kwargs: Any) -> Any:
                return keyed(*args, **kwargs).run(function, *args, **kwargs)

            @wraps(function)
            async def arun(*args: Any, **kwargs: Any) -> Any:
                return await keyed(*args, **kwargs).arun(function, *args, **kwargs)

            wrapper: Any = arun if iscoroutinefunction(function) else run
            wrapper.__signature__ = taken
            return wrapper

        return decorate

    def _open(self) -> Exchange:
        settings = config_with(config(), lease=self._lease, wait=self._wait)
        if not settings.enabled:
            digest = keys.digest_of(scope=self._scope, key=self._key)  # a function may number its calls by it
            return UnkeyedExchange(mode=self._strategy.mode, config=settings, digest=digest)
        return self._strategy(
            scope=self._scope,
            key=self._key,
            content=self._content,
            request_id=logs.bound().get("request_id", ""),
            config=settings,
        )

    def _answer(self, result: Any) -> HttpResponse:
        try:
            body = json.dumps(result, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(
                f"once({self.name!r}) got a result that is not JSON ({error}). Nothing was stored. Return what "
                "its copies need as a dict, list, str, number, bool or None: an id in place of a row."
            ) from error
        return HttpResponse(body, content_type="application/json")


def _again() -> bool:
    return True  # a function gets the same arguments again


def _result(answer: HttpResponseBase) -> Any:
    """Read an answer back; an operator may have closed the call with a refusal, or no body."""
    body = cast(HttpResponse, answer).content
    value: Any = json.loads(body) if body else None
    if answer.status_code >= 400:
        raise Problem(answer.status_code, value["code"], value["detail"], title=value["title"])
    return value


def _refuse_text(what: str, value: str, most: int = keys.MAX_KEY_LENGTH) -> None:
    if not isinstance(value, str):
        raise TypeError(f"The {what} must be a str, not {value!r}.")
    if fault := keys.fault_of(value, most):
        raise ValueError(f"The {what} is not usable: {fault}.")


def _taking_call(fn: Callable[..., T], exchange: KeyedCall | None) -> Callable[..., T]:
    return partial(fn, **{NAME: exchange}) if takes_call(fn) else fn


def _chooser(task: str, of: str, choose: Any, taken: Signature) -> Callable[[dict[str, Any]], Any]:
    """Build a function of a call's arguments by name; TypeError for names that it has not."""
    if of == "payload" and choose == "arguments":
        return partial(_beyond_defaults, {name: each.default for name, each in taken.parameters.items()})
    if not callable(choose):
        raise TypeError(f"once.task({task!r}): {of} is a function of the arguments, not {choose!r}.")
    try:
        parameters = signature(choose).parameters
    except ValueError:  # a builtin that does not say
        parameters = Signature().parameters
    by_name = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    wanted = (name for name, each in parameters.items() if each.kind in by_name and each.default is each.empty)
    if (each := first_missing(wanted, taken)) is not None:
        raise TypeError(
            f"once.task({task!r}): key, payload, principal and tenant get arguments of the function by name."
            f" It has no {each!r}, but {', '.join(taken.parameters) or 'none'}."
        )
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
    return lambda given: choose(**{name: given[name] for name in given if takes_any or name in parameters})


def _beyond_defaults(defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Leave out defaults, so that a new parameter makes no other call of a retry."""
    return {name: value for name, value in given.items() if name not in defaults or value != defaults[name]}


def _refuse_taken(name: str, function: Callable[..., Any]) -> None:
    """Refuse the name of another function of a module, which would get the results of this one."""
    if "<locals>" in getattr(function, "__qualname__", "<locals>"):  # a partial has none
        return
    # by its file too: one module may be imported under two names
    file = getattr(getattr(unwrap(function), "__code__", None), "co_filename", function.__module__)
    here = [f"{place}.{function.__qualname__}" for place in (function.__module__, file)]
    there = _places_of_tasks.setdefault(name, here)
    if here[0] != there[0] and here[1] != there[1]:
        raise TypeError(
            f"once.task({name!r}) on {here[0]}: it is the name of {there[0]}, and equal keys would give one of "
            "them the results of the other. Give one of them another name."
        )


def _content_of(name: str, payload: Any) -> bytes:
    try:
        return keys.canonical_value(payload)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"The payload of once({name!r}) is not JSON ({error}). A task's are its arguments, unless you pass "
            "payload=, a function of those that make another call, or payload=None."
        ) from error
