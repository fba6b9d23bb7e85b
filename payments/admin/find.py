"""One search for anything a person can hold, by an index or among the newest rows."""

import re
from collections import defaultdict
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.contrib.admin import AdminSite
from django.contrib.auth import get_user_model
from django.core.exceptions import FieldError, ValidationError
from django.db.models import CharField, Model, Q, QuerySet
from django.db.models.functions import Cast, Right
from django.http import HttpRequest
from django.utils.translation import gettext as _

from idempotency.admin.log_display import user_of
from idempotency.admin.searching import newest, numbers_among_newest, numbers_of
from idempotency.models import LedgerEntry
from payments import order_keys
from payments.channels import configured as channels
from payments.models import Anomaly, Attempt, Difference, Notification, Observation, Payment
from payments.money import EXPONENTS, from_decimal
from payments.settlement.state import as_id

FIRST = (Payment, LedgerEntry)
THEN = (Anomaly, Difference, Notification)  # only where the first know nothing: a payment's page names them
SHOWN = 20  # of each model

_SHORT = re.compile("[0-9a-f]{6}", re.IGNORECASE)
_AMOUNT = re.compile(r"[¥$€£]? ?([0-9,]+(?:\.[0-9]+)?) ?([A-Z]{3})?")


def find(site: AdminSite, request: HttpRequest, term: str) -> list[Model]:
    """Find rows by `term` in the lists that the user may view, by each list's own search.

    A `ModelAdmin` of another app takes part with `is_found_by_desk`.
    """
    others = [model for model, page in site._registry.items() if getattr(page, "is_found_by_desk", False)]
    groups: tuple[tuple[type[Model], ...], ...] = (FIRST, (*THEN, *others))
    for models in groups:
        found = [row for model in models for row in _rows(site, request, model, term)]
        if found:
            return found
    return []


def with_number(term: str) -> QuerySet[Observation]:
    """Find facts of that number at all our merchant accounts, which begin the unique index."""
    ours = Q(pk__in=[])
    for provider in channels.current().values():
        ours |= Q(channel=provider.channel, merchant=provider.merchant, provider_txn_id=term)
    return Observation.objects.filter(ours)


def numbers_in(term: str) -> set[UUID]:
    """Read a number of ours: 32 digits, dashes or none, or in the form that a provider takes."""
    written = {term.replace("-", "").lower()}
    for provider in channels.current().values():
        with suppress(ValueError):  # a number of the provider's own
            written.add(getattr(provider, "read_number", str)(term))
    return set(filter(None, map(as_id, written)))


def described(rows: QuerySet[Payment], term: str) -> set[UUID]:
    """Find payments by short order number, amount, customer or provider's reference."""
    wanted = Q(pk__in=newest(Attempt.objects.all()).filter(reference=term).values("payment_id"))
    for amount_minor, currencies in _amounts(term).items():
        wanted |= Q(Q(amount_minor=amount_minor) | Q(refunded_minor=amount_minor), currency__in=currencies)
    found = numbers_among_newest(rows, wanted) | by_short_number(rows, term, "order_id")
    user = get_user_model()
    people = set(user._default_manager.filter(**{user.USERNAME_FIELD: term}).values_list("pk", flat=True))
    with suppress(FieldError):  # users of the project may have no address
        if "@" in term:
            email = Q(**{f"{user.get_email_field_name()}__iexact": term})
            people |= numbers_among_newest(user._default_manager.all(), email)
    return found | numbers_of(rows.filter(owner__in=people), "owner_id", "-pk")


def of_order(rows: QuerySet[Payment], term: str) -> set[UUID]:
    """Return the number of the payment of the order with that key; empty: there is none."""
    with suppress(ValidationError):
        return numbers_of(rows.filter(order_keys.of_order(term)), "order_id")
    return set()


def by_short_number(rows: QuerySet[Any], term: str, column: str = "pk") -> set[UUID]:
    """Return the newest rows whose UUID ends like that, as a shopper reads out ``79D332``."""
    if not _SHORT.fullmatch(term):
        return set()
    numbered = rows.annotate(short_number=Right(Cast(column, CharField()), 6))
    return numbers_among_newest(numbered, Q(short_number=term.lower()))


def use_of(entry: LedgerEntry) -> str:
    """Say who used a key, for what and with which answer."""
    caller, _space, what = entry.scope.partition(" ")
    kind, _colon, number = caller.partition(":")
    if kind == "user" and (user := user_of(number)) is not None:
        caller = user.get_username()
    about = {"who": caller, "what": what, "status": entry.response_status or "-"}
    return _("This key was used by %(who)s for %(what)s. Answer: %(status)s.") % about


def _rows(site: AdminSite, request: HttpRequest, model: type[Model], term: str) -> list[Model]:
    page: Any = site._registry.get(model)
    if page is None or not page.has_view_permission(request):
        return []
    return list(page.search(page.get_queryset(request), term).order_by("-pk")[:SHOWN])


def _amounts(term: str) -> dict[int, list[str]]:
    """Read ``39.80``, ``¥39.80`` or ``39.80 CNY`` as minor units: the currencies of each."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    if written := _AMOUNT.fullmatch(term):
        for currency in [written[2]] if written[2] else EXPONENTS:
            with suppress(ValueError):
                found[from_decimal(written[1].replace(",", ""), currency)].append(currency)
    return {amount_minor: currencies for amount_minor, currencies in found.items() if 0 < amount_minor < 2**63}
