"""Settings of `PAYMENTS = {...}`, typed and checked once, and the order adapter."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import timedelta
from functools import lru_cache
from inspect import iscoroutinefunction
from os import PathLike
from typing import Any, Protocol, cast
from urllib.parse import urljoin

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured, ObjectDoesNotExist
from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import Model
from django.utils.module_loading import import_string

from idempotency.conf import meant
from idempotency.postgres.statements import Statement, UnitOfWork, send
from payments.money import EXPONENTS
from payments.states import ANOMALY_FILED, EVENT_OF


class Payable(ABC):
    """The project's orders, as payments know them; ``ORDER`` names a subclass.

    An order is given with its primary key alone: each other field is read when it is used. `start` gives it whole,
    with its row locked. What marks an order is called inside the settling transaction, after the payment is locked
    and before it is written; it takes its step by a conditional UPDATE, and calls nobody.

    Attributes:
        model: of the orders, with a primary key of any type.
        currency: ISO 4217, of `amount`.
        lives: how long an attempt can be paid.
    """

    model: type[Model]
    currency = "CNY"
    lives = timedelta(minutes=30)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(Payable):
            if iscoroutinefunction(getattr(cls, name, None)):  # nobody would await it
                raise TypeError(f"{cls.__qualname__}.{name} is async. Write def: it is called in a transaction.")

    @abstractmethod
    def amount(self, order: Any, /) -> int:
        """Return what is to be paid, above zero, in minor units; the first attempt fixes it."""

    @abstractmethod
    def describe(self, order: Any, /) -> str:
        """Return what the shopper's wallet shows: 127 characters, the rest is cut."""

    @abstractmethod
    def return_url(self, order: Any, /) -> str:
        """Return the page to which a provider sends the shopper back: a path, or a whole address."""

    @abstractmethod
    def is_payable(self, order: Any, /) -> bool:
        """Return whether it is open, and waits for money."""

    @abstractmethod
    def mark_paid(self, order: Any, /) -> bool:
        """Take the money; return False if it must go back.

        Raise `IntegrityError` if the order's own version has changed since it was read: all is read again.
        """

    @abstractmethod
    def mark_refunded(self, order: Any, /) -> None:
        """All of the money went back."""

    def mark_closed(self, order: Any, /) -> None:  # noqa: B027  most orders stay as they are
        """Every attempt is closed unpaid; a new one may begin while the order is payable."""

    def account(self, order: Any, channel: str, /) -> str | None:
        """Return the account of `channel` that takes the money; None: its default one."""
        return None

    def owner(self, order: Any, /) -> Any:
        """Return the user who may see the payment and refund it; None: staff alone."""
        return None


class Orders(Protocol):
    """Orders as settlement sees them: a `Payable`, or an adapter that counts round trips."""

    def on_payment(self, *, order_id: Any, event: str, work: UnitOfWork) -> bool:
        """Take a step of the order: ``paid`` (False: refund it), ``refunded`` or ``closed``.

        Called as what marks a `Payable`, but before the payment is locked: it takes its step by `work.step`, or
        calls ``work.flush()`` first. ``payable`` asks, in no transaction, whether an attempt may be opened.
        """

    def return_url(self, *, order_id: Any) -> str:
        """As of `Payable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Values of ``LIMITS``, for the calls to the provider for one account, over all processes."""

    calls: int = 32  # at once; shoppers' questions get a quarter
    calls_per_second: int = 100  # that begin in any second; shoppers' questions get a quarter
    wait_seconds: float = 1.0  # for both, 0 to 2; then nothing is sent

    def __post_init__(self) -> None:
        for name in ("calls", "calls_per_second"):
            count = getattr(self, name)
            if type(count) is not int or count < 1:
                raise ImproperlyConfigured(
                    f"PAYMENTS['LIMITS'][{name.upper()!r}] must be a whole number above zero, not {count!r}."
                )
        wait = self.wait_seconds
        if type(wait) not in {int, float} or not wait >= 0:
            raise ImproperlyConfigured(f"PAYMENTS['LIMITS']['WAIT_SECONDS'] must be 0 or more, not {wait!r}.")


EVENT_TYPES = (*EVENT_OF.values(), ANOMALY_FILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Values of an endpoint in ``WEBHOOKS``."""

    url: str  # takes POST requests; https, but for this machine or with ``DEBUG``
    secrets: str = field(default="", repr=False)  # ``whsec_…``, parted by blanks or commas; all of them sign
    secrets_file: str = ""  # file with them instead, read at each run
    events: Sequence[str] = EVENT_TYPES  # the types that it gets


@dataclass(frozen=True, slots=True, kw_only=True)
class Refunds:
    """Values of ``REFUNDS``, for money that counts for no order and goes back by policy."""

    # currency → minor units; an operator approves or declines the refund of a larger sum. One in another currency
    # goes back at once
    approve_above: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = self.approve_above
        if not isinstance(given, Mapping) or not all(map(_is_limit, given.items())):
            raise ImproperlyConfigured(
                "PAYMENTS['REFUNDS']['APPROVE_ABOVE'] must map currencies to minor units, as in {'CNY': 50000},"
                f" each a code of ISO 4217, not {given!r}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Values of the `PAYMENTS` setting; each field is its key in capitals."""

    base_url: str  # absolute address of this project; providers send notifications and shoppers to it
    order: str  # dotted path of the adapter to the orders: a `Payable`, or `Orders`
    # dotted path of a function that handles each event of a payment, in order (`payments.settlement.events`)
    events: str | None = None
    # merchant account → field → value; ``BACKEND`` is the path of the channel's package, where the account is not
    # named like a channel of ours
    providers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)  # of calls to the provider, for each account
    # name, which is never changed → endpoint of the project's that is sent what is decided
    webhooks: Mapping[str, Endpoint] = field(default_factory=dict)
    refunds: Refunds = field(default_factory=Refunds)  # what goes back by itself

    def address(self, where: str) -> str:
        """Return the absolute address of a path of ours; any other address as it is."""
        return urljoin(f"{self.base_url}/", where)


def parse(raw: Any) -> Config:
    """Read the dict of the `PAYMENTS` setting. Raises ImproperlyConfigured, naming a key."""
    values = _read(Config, "PAYMENTS", raw)
    sections: dict[str, type[Any]] = {"limits": Limits, "refunds": Refunds}
    for name, kind in sections.items():
        if name in values:
            values[name] = kind(**_read(kind, f"PAYMENTS[{name.upper()!r}]", values[name]))
    if "webhooks" in values:
        given = _dict("PAYMENTS['WEBHOOKS']", values["webhooks"]).items()
        read = {name: _read(Endpoint, f"PAYMENTS['WEBHOOKS'][{name!r}]", one) for name, one in given}
        values["webhooks"] = {name: Endpoint(**one) for name, one in read.items()}
    for name, one in _dict("PAYMENTS['PROVIDERS']", values.get("providers", {})).items():
        where = f"PAYMENTS['PROVIDERS'][{name!r}]"
        for key, value in _dict(where, one).items():
            if not isinstance(value, str | PathLike | None):
                raise ImproperlyConfigured(f"{where}[{key!r}] must be a text, not {type(value).__name__}.")
    for name, path in {"ORDER": values["order"], "EVENTS": values.get("events") or ""}.items():
        if not isinstance(path, str):
            raise ImproperlyConfigured(
                f"PAYMENTS[{name!r}] must be a path, as 'shop.paying.Orders', not {path!r}."
            )
    if not re.fullmatch(r"(?i)https?://[^\s/?#:@][^\s/?#]*(/[^\s?#]*)?", str(values["base_url"])):
        raise ImproperlyConfigured(
            "PAYMENTS['BASE_URL'] must be an absolute address such as https://shop.example."
        )
    return Config(**values)


@lru_cache(maxsize=1)
def config() -> Config:
    return parse(getattr(settings, "PAYMENTS", {}))


def orders() -> Orders:
    """Import the adapter that ``ORDER`` names."""
    found = import_string(config().order)
    return _Adapter(found()) if isinstance(found, type) and issubclass(found, Payable) else cast("Orders", found)


def payable() -> Payable:
    """Return the project's `Payable`. Raises ImproperlyConfigured where ``ORDER`` names none."""
    found = orders()
    if isinstance(found, _Adapter):
        return found.payable
    raise ImproperlyConfigured(f"PAYMENTS['ORDER'] = {config().order!r} is no payments.Payable.")


class _Adapter:
    """`Orders` of a `Payable`."""

    def __init__(self, payable: Payable) -> None:
        self.payable, self.model = payable, payable.model

    def on_payment(self, *, order_id: Any, event: str, work: UnitOfWork) -> bool:
        order, payable = self._order(order_id), self.payable
        if event == "payable":  # in no transaction
            try:
                return payable.is_payable(order)
            except ObjectDoesNotExist:  # of a row that it names, unless the order is gone
                order_is_there = send(self._finding(order_id))[0]
                if order_is_there:
                    raise
                return False
        # locked, so that nobody deletes it: `save()` of a loaded order would insert it again
        if not work.ask(self._finding(order_id, " FOR KEY SHARE")):
            return False  # the order is gone, so its money goes back
        if event == "paid":
            if (takes := payable.mark_paid(order)) is None:  # a forgotten `return` must not give money back
                raise TypeError(f"{type(payable).__name__}.mark_paid must return True or False")
            return takes
        {"refunded": payable.mark_refunded, "closed": payable.mark_closed}[event](order)
        return True

    def return_url(self, *, order_id: Any) -> str:
        return self.payable.return_url(self._order(order_id))

    def _finding(self, order_id: Any, locking: str = "") -> Statement:
        """Look for the row where orders are written, whatever their managers hide."""
        connection, key = connections[DEFAULT_DB_ALIAS], self.model._meta.pk
        quoted = connection.ops.quote_name
        table, column = quoted(self.model._meta.db_table), quoted(str(key.column))
        text = f"SELECT 1 FROM {table} WHERE {column} = %s{locking}"  # noqa: S608  names of the project's own model
        return Statement(text, [key.get_db_prep_value(order_id, connection)])

    def _order(self, order_id: Any) -> Model:
        """Make the order without a query: the fields that it lacks are read when they are used."""
        return self.model.from_db(DEFAULT_DB_ALIAS, [self.model._meta.pk.attname], [order_id])


def _dict(where: str, raw: Any) -> Mapping[Any, Any]:
    if not isinstance(raw, Mapping):
        raise ImproperlyConfigured(f"{where} must be a dict, not {type(raw).__name__}.")
    for name in raw:
        if not isinstance(name, str):
            raise ImproperlyConfigured(f"{where}[{name!r}]: a name is a text, as {str(name)!r}.")
    return raw


def _read(kind: type[Any], where: str, raw: Any) -> dict[str, Any]:
    """Return values by field name."""
    known = {entry.name.upper(): entry for entry in fields(kind)}
    for name in _dict(where, raw):
        if name not in known:
            raise ImproperlyConfigured(f"{where}[{name!r}] is unknown; {meant(name.upper(), known)}")
    needed = [name for name, one in known.items() if one.default is MISSING and one.default_factory is MISSING]
    if missing := [repr(name) for name in needed if name not in raw]:
        raise ImproperlyConfigured(f"{where} needs {' and '.join(missing)}: see payments.conf.{kind.__name__}.")
    return {known[name].name: value for name, value in raw.items()}


def _is_limit(pair: tuple[Any, Any]) -> bool:
    currency, amount_minor = pair
    return currency in EXPONENTS and type(amount_minor) is int and amount_minor >= 0


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "PAYMENTS":
        config.cache_clear()


setting_changed.connect(_forget)
