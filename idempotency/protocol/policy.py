"""Policy of a keyed view, and a call's key: by token, header, or content in a window.

A window has no edges. An unkeyed call has the key of the youngest entry of the same caller, route and content, as
long as that one is unfinished or was finished within the window by the database's clock; else the next one's. Two
concurrent repeats read the same youngest entry and so have the same key, whose unique constraint lets one execute.

Limits: it costs a query, and the digest of the content is keyed by the oldest of `SECRET_KEY_FALLBACKS`, so a
repeat across the removal of that one may count again.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.module_loading import import_string

from idempotency import ledger
from idempotency.conf import Config, config, meant
from idempotency.errors import (
    Problem,
    key_invalid,
    key_missing,
    key_weak,
    length_missing,
    malformed,
    problem_response,
    token_unknown,
)
from idempotency.modes import ATOMIC, Mode
from idempotency.protocol import tokens
from idempotency.protocol.atomic import AtomicExchange
from idempotency.protocol.exchange import Exchange
from idempotency.protocol.options import OnProblem, OnReplay, Options, refuse_unfit
from idempotency.protocol.unkeyed import UnkeyedExchange
from idempotency.request import keys
from idempotency.request.principal import anonymous_like, caller_of, is_anonymous, principal_of, was_answered

if TYPE_CHECKING:
    from idempotency.protocol.recovery import Phases

Key = str | Callable[[bytes], str]  # or a function of the content


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
            (see the module). An anonymous caller's cannot be recognised: it needs a key, or runs unkeyed where
            `required` is False.
        on_problem: shows the key's problems, and the Problems that the view raises, as ``(request, problem)``. A
            refusal among them is stored and replayed like any answer.
        on_replay: called with the request and each answer that is a replay; may change or replace it.

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
    _strategy: Callable[..., Exchange] = field(init=False)  # with what is the same for all calls

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Policy":
        """Read a decorator's options; TypeError names one that is unknown or cannot be honoured."""
        known = Options.__annotations__
        for name in options:
            if name not in known:
                raise TypeError(f"@idempotent has no option {name!r}; {meant(name, known)}")
        return cls(**options)

    def __post_init__(self) -> None:
        refuse_unfit(self)
        of_phases = () if isinstance(self.mode, Mode) else self.mode.redact
        strategy = partial(_class_of(self.mode), handler=self._handler, redact=(*self.redact, *of_phases))
        object.__setattr__(self, "_strategy", strategy)

    def open(self, request: HttpRequest, *, caller: Any) -> Exchange:
        """Open the exchange of this request, also as `request.idempotency`; nothing is claimed yet.

        Args:
            caller: the request that authentication has seen: REST framework's, where there is one.

        Raises:
            Problem: see `_identify`.
        """
        exchange = self._exchange(request, caller) if config().enabled else None
        if exchange is None:
            exchange = UnkeyedExchange(mode=_plain(self.mode), handler=self._handler, config=self._settings())
        if (hook := self.on_replay or config().on_replay) is not None:
            exchange.on_replay = partial(import_string(hook) if isinstance(hook, str) else hook, caller)
        request.idempotency = exchange  # type: ignore[attr-defined]
        return exchange

    def _exchange(self, request: HttpRequest, caller: Any) -> Exchange | None:
        """Open the exchange of a key; None for a call that needs none."""
        named = self._identify(request, caller)
        if named is None:
            return None
        scope, key = named
        content = keys.canonical(request, ignore=config().ignore if self.ignore is None else self.ignore)
        if not request.META.get("CONTENT_LENGTH") and _is_unseen(request):
            raise length_missing()
        if callable(key):
            key = key(content)
        return self._strategy(
            scope=scope,
            key=key,
            content=content,
            request_id=str(getattr(request, "request_id", None) or ""),
            request=request,
            config=self._settings(),
            lifetime=self.lifetime,
        )

    def _identify(self, request: HttpRequest, caller: Any) -> tuple[str, Key] | None:
        """Return (scope, key) by the Idempotency-Token (header or field), else by the header.

        Raises:
            Problem: key missing, invalid or weak; token unknown; an anonymous caller is turned away.
        """
        header = self.header or config().header
        # from META: `request.headers` would build a mapping of all of them first
        token = request.META.get("HTTP_IDEMPOTENCY_TOKEN")
        if not token:
            token = request.POST.get(keys.FORM_FIELD) if request.content_type in keys.FORMS else None
        given: Any = request.META.get(_in_meta(header))
        if token is None and given is None:
            return self._identify_without_key(request, caller, header)
        principal = caller_of(caller, by=self.principal)  # authentication comes before the key
        if token is None:
            return _by_header(request, given, caller=caller, principal=principal, header=header)
        taken = tokens.read(token.strip('"'), principal=principal)  # a quoted string, as a key may be
        if taken is None:
            raise token_unknown()
        if given is not None:
            raise key_invalid(f"send an {header} or an Idempotency-Token, not both", header)
        return _by_token(taken)

    def _identify_without_key(self, request: HttpRequest, caller: Any, header: str) -> tuple[str, Key] | None:
        """Return (scope, key) by the content within the window; None: the call may run unkeyed."""
        required = config().required if self.required is None else self.required
        is_required = required(caller) if callable(required) else required
        if not is_required and (self.window is None or is_anonymous(principal_of(caller, by=self.principal))):
            return None
        principal = caller_of(caller, by=self.principal)
        if self.window is None or is_anonymous(principal):
            raise key_missing(header)
        scope = _scope_of(request, caller=caller, principal=principal, key="")
        return scope, partial(key_in_window, scope, seconds=self.window)

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
        response: Any = (
            self.on_problem(request, problem) if self.on_problem else problem_response(problem, request)
        )
        if not isinstance(response, HttpResponseBase):
            raise TypeError(f"on_problem={self.on_problem!r} returned {response!r}. Return an HttpResponse there.")
        return response

    def _settings(self) -> Config:
        """Return the settings in force for this view."""
        return config_with(config(), wait=self.wait, lease=self.lease)

    @property
    def _handler(self) -> str:
        return "" if isinstance(self.mode, Mode) else self.mode.name


@lru_cache(maxsize=256)
def config_with(settings: Config, *, wait: float | None, lease: float | None) -> Config:
    """Return the settings of a call, some of which are its own; once for all its like."""
    own = {"wait_seconds": wait, "lease_seconds": lease}
    changes: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
    return replace(settings, **changes) if changes else settings


def _plain(mode: "Mode | Phases") -> Mode:
    return mode if isinstance(mode, Mode) else mode.mode


def _class_of(mode: "Mode | Phases") -> type[Exchange]:
    if _plain(mode) is Mode.ATOMIC:
        return AtomicExchange
    from idempotency.protocol.phases import PhasedExchange  # noqa: PLC0415  atomic views need none of it

    return PhasedExchange


def _by_header(request: HttpRequest, given: str, *, caller: Any, principal: str, header: str) -> tuple[str, Key]:
    key = keys.parse_key(given, header=header)
    # a token, of three parts as Django's signer writes them, counts once by whichever header it comes
    taken = tokens.read(key, principal=principal) if key.count(":") == 2 else None
    if taken is not None:
        return _by_token(taken)
    if is_anonymous(principal) and not keys.is_hard_to_guess(key):
        raise key_weak()
    return _scope_of(request, caller=caller, principal=principal, key=key), key


def _by_token(taken: tokens.Taken) -> tuple[str, Key]:
    if taken.refused is not None:
        return taken.scope, partial(tokens.key_of_try, taken)
    if taken.expired and ledger.find(scope=taken.scope, key=taken.key) is None:
        raise token_unknown()
    return taken.scope, taken.key


@lru_cache(maxsize=64)
def _in_meta(header: str) -> str:
    return f"HTTP_{header.upper().replace('-', '_')}"


def key_in_window(scope: str, content: bytes, *, seconds: float) -> str:
    """Return the key of an unkeyed call: one query."""
    stem = f"w{keys.lasting_fingerprint(content).hex()}n"
    found = ledger.numbered(scope=scope, stem=stem)
    if not found:
        return ledger.numbered_key(stem, 0)
    age_seconds = found[0].age_seconds
    is_over = age_seconds is not None and age_seconds >= seconds
    return ledger.numbered_key(stem, found[0].number + is_over)


def _scope_of(request: HttpRequest, *, caller: Any, principal: str, key: str) -> str:
    """Return the caller's scope here; the anonymous one, if it answered the key before."""
    method = request.method or ""
    route = request.resolver_match.route if request.resolver_match else request.path
    if principal.startswith("session:"):
        before = keys.scope_of(principal=anonymous_like(principal), method=method, route=route)
        if was_answered(caller.session, scope=before, key=key):
            return before
    return keys.scope_of(principal=principal, method=method, route=route)


def _is_unseen(request: Any) -> bool:
    """Check for a body without a length, which Django takes for empty under WSGI.

    Any other one would be the same request.

    Raises:
        Problem: its sender has gone.
    """
    meta, is_form = request.META, request.content_type == "multipart/form-data"
    has_been_read = getattr(request, "_body", b"") and not is_form  # which Django parses by its length alone
    if has_been_read or not hasattr(request, "environ"):
        return False
    if "HTTP_TRANSFER_ENCODING" in meta:
        return True
    try:  # HTTP/2 has no such header; a server that does not end the stream would let a read wait for ever
        return bool(meta.get("wsgi.input_terminated") and meta["wsgi.input"].read(1))
    except OSError as error:
        raise malformed() from error
