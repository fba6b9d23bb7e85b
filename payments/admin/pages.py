"""Read-only pages of payments in the admin, with confirmed acts, and what they share."""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import quote as admin_quote
from django.db import models
from django.db.models import F, Q
from django.db.transaction import non_atomic_requests
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import NoReverseMatch, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from idempotency.admin.labels import utc
from idempotency.admin.pages import ReadOnlyAdmin, Tool, column, in_utc, time_column
from idempotency.admin.searching import WholeTermSearch
from idempotency.conf import config
from payments.admin.badges import badge, badge_column
from payments.admin.find import numbers_in
from payments.admin.forms import ReasonForm, ResolutionForm
from payments.channels.accounts import account_name, provider_name
from payments.display import money, stored_text
from payments.models import AuditEntry
from payments.models.audit import subject_of
from payments.operations import actions


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Something that an operator may do about a row, once they have read what will happen.

    What makes its sentences, or carries it out, may raise `NotDecidable`.
    """

    permission: str
    title: Any  # of its page, and of the button that leads there
    button: Any  # the words that do it
    sentences: Callable[[Any], list[str]]  # what will happen, and what will not
    carry_out: Callable[[Any, dict[str, Any], actions.Operator], actions.Result]
    is_open: Callable[[Any], bool] = lambda row: True  # False where the row's page offers no button
    form: Callable[[Any, Any], forms.Form] = lambda row, given: ReasonForm(given)  # with what was sent


def resolving(permission: str, sentences: Callable[[Any], list[str]]) -> Act:
    """Make the act that takes a row off the list of open work."""
    return Act(
        permission=permission,
        title=gettext_lazy("Resolve"),
        button=gettext_lazy("Resolve it"),
        sentences=sentences,
        carry_out=lambda row, form, by: actions.resolve(row, by=by),
        is_open=lambda row: not (row.resolved_at or getattr(row, "needs_approval", False)),
        form=lambda row, given: ResolutionForm(given),
    )


def money_column(field: str, words: Any) -> Any:
    """Make a column with the amount in `field`, as money of the row's currency."""
    return column(lambda row: money(getattr(row, field), row.currency), words)


class MoneyAdmin(WholeTermSearch, ReadOnlyAdmin):
    """Read-only pages about money, the newest row first; an operator's act is confirmed first."""

    # what can be done about a row, by the name that its address ends with
    acts: ClassVar[Mapping[str, Act]] = {}
    # pages and files beside those of the rows: address, method, and name of the address
    views: ClassVar[Sequence[tuple[str, str, str]]] = ()
    search_fields = ("pk",)
    ordering: ClassVar[tuple[Any, ...]] = ("-pk",)

    # columns of rows that have these fields
    payment_link = column(lambda row: link_to_payment(row.payment_id), gettext_lazy("payment"))
    provider = column(lambda row: provider_name(row.channel), gettext_lazy("provider"))
    merchant_account = column(lambda row: account_name(row.account), gettext_lazy("merchant account"))
    state = badge_column()
    amount = money_column("amount_minor", gettext_lazy("amount"))
    said = column(lambda row: stored_text(row.message) or "-", gettext_lazy("message"))
    next_question = time_column("next_query_at", gettext_lazy("next check"))

    class Media:
        css = {"all": ["payments/admin.css"]}

    def get_urls(self) -> list[Any]:
        name = f"payments_{self.opts.model_name}"

        def shown(view: Any) -> Any:  # it may call a provider: not in the transaction of ATOMIC_REQUESTS
            return non_atomic_requests(self.admin_site.admin_view(view))

        number = "<uuid:pk>" if isinstance(self.opts.pk, models.UUIDField) else "<int:pk>"
        return [
            *(path(address, shown(getattr(self, view)), name=named) for address, view, named in self.views),
            *(
                path(f"{number}/{act}/", shown(self.act_view), {"act": act}, name=f"{name}_{act}")
                for act in self.acts
            ),
            *super().get_urls(),
        ]

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show operators' acts about the row; Django's own log has none of them."""
        self.require(request)
        row = self.get_object(request, object_id)
        if row is None:
            raise Http404
        what = _("operator, %s") % row._meta.verbose_name
        moments = [
            (utc(entry.created_at), {"what": what, "who": entry.operator, "note": entry.message}, "")
            for entry in AuditEntry.objects.filter(subject=subject_of(row))
        ]
        return self.own_page(request, "admin/payments/history.html", _("History"), row=row, moments=moments)

    def tools(self, request: HttpRequest, row: Any) -> list[Tool]:
        name = f"admin:payments_{self.opts.model_name}"
        return [
            Tool(address=reverse(f"{name}_{act}", args=[row.pk]), words=one.title)
            for act, one in self.acts.items()
            if not self.lacks(request, one.permission) and one.is_open(row)
        ]

    def act_view(self, request: HttpRequest, pk: Any, act: str) -> HttpResponse:
        """Ask about an act, and do it."""
        self.require(request, self.acts[act].permission)
        row = get_object_or_404(self.get_queryset(request), pk=pk)
        return self.ask_first(request, row, self.acts[act])

    def ask_first(self, request: HttpRequest, row: models.Model, act: Act, about: Any = None) -> HttpResponse:
        """Show what will happen; do it on POST, and report on the row's page.

        Args:
            about: what the act is about, if not the row itself.
        """
        about = about or row
        if settled_at := getattr(row, "resolved_at", None):
            before = {"at": utc(settled_at), "resolution": stored_text(getattr(row, "resolution", ""))}
            messages.warning(request, _("It has been resolved before, %(at)s UTC: %(resolution)s") % before)
            return HttpResponseRedirect(page_of(row))
        form = act.form(about, request.POST or None)
        try:
            if request.method != "POST" or not form.is_valid():
                shown = {"row": row, "act": act, "sentences": act.sentences(about), "form": form}
                return self.own_page(request, "admin/payments/confirm.html", act.title, **shown)
            by = actions.Operator(user_id=request.user.pk, reason=form.cleaned_data["reason"])
            result = act.carry_out(about, form.cleaned_data, by)
        except actions.NotDecidable as refused:
            messages.error(request, str(refused))
        else:
            level = messages.SUCCESS if result.done else messages.WARNING
            for sentence in result.sentences:
                messages.add_message(request, level, sentence)
        return HttpResponseRedirect(page_of(row))


class OwnNumberAdmin(MoneyAdmin):
    """Pages of rows that have our numbers, their own and their payment's; both find them."""

    number = column(lambda row: shortened(row.pk), gettext_lazy("our number"))

    def search(self, rows: models.QuerySet[Any], term: str) -> models.QuerySet[Any]:
        ours = numbers_in(term)
        return rows.filter(Q(pk__in=ours) | Q(payment_id__in=ours))


class ResolvableAdmin(MoneyAdmin):
    """Pages of rows that a person resolves."""

    is_decided_about = True
    # open rows have no time and come first, oldest first; then the last resolved
    ordering = (F("resolved_at").desc(nulls_first=True), "pk")
    settled = column(
        lambda row: utc(row.resolved_at) if row.resolved_at else badge("open"), in_utc(gettext_lazy("resolved at"))
    )
    in_the_end = column(lambda row: stored_text(row.resolution) or "-", gettext_lazy("resolution"))


def advice(row: Any, about: Mapping[str, Any]) -> str:
    return _("Nothing to do: resolved.") if row.resolved_at else str(about[row.kind])


def section(title: Any, *names: str, **options: Any) -> tuple[Any, Any]:
    return title, {"fields": names, **options}


def page_of(row: models.Model) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def link(row: models.Model | None, words: str = "") -> SafeString | str:
    """Link the row's page; a dash for None."""
    if row is None:
        return "-"
    return format_html('<a href="{}">{}</a>', page_of(row), words or str(row))


def link_to_payment(payment_id: uuid.UUID | None) -> SafeString | str:
    """Link a payment by its number alone, so that no list needs the payments' rows."""
    return link_to_number("payment", payment_id) if payment_id else "-"


def link_to_number(model: str, number: uuid.UUID) -> SafeString:
    """Link the page of the row of `model` with that number, which is not looked up."""
    address = reverse(f"admin:payments_{model}_change", args=[number])
    return format_html('<a href="{}" title="{}">{}</a>', address, number.hex, short(number))


def link_to_order(order_no: str, *, is_whole: bool = False) -> SafeString | str:
    """Link the page that `SUBJECT_ADMIN` names for orders, by number or its end, ``79D332``."""
    shown = order_no if is_whole else order_no[-6:].upper()
    try:
        address = reverse(config().subject_admin["order"], args=[admin_quote(order_no)])
    except (KeyError, NoReverseMatch):
        return shown
    return format_html('<a href="{}" title="{}">{}</a>', address, order_no, shown)


def table(entries: Iterable[tuple[str, str]], otherwise: str) -> SafeString | str:
    """Show names with their values, or `otherwise` where there are none."""
    lines = format_html_join("", '<tr><th scope="row">{}</th><td>{}</td></tr>', entries)
    shown = format_html('<table class="payments-details"><tbody>{}</tbody></table>', lines)
    return shown if lines else otherwise


def breakable(name: str) -> SafeString:
    """Let a line end after a dot or underscore: of ``TRANSACTION.SUCCESS``, not inside a word."""
    return format_html_join(
        mark_safe("<wbr>"), "{}", ((part,) for part in re.findall(r"[^._]*[._]+|[^._]+", name))
    )


def short(number: uuid.UUID) -> str:
    """Return beginning and end of one of our numbers: ids of one moment begin alike."""
    return f"{number.hex[:8]}…{number.hex[-6:]}"


def shortened(number: uuid.UUID) -> SafeString:
    """Shorten a number for a list, with the whole one where the mouse rests."""
    return format_html('<span title="{}">{}</span>', number.hex, short(number))
