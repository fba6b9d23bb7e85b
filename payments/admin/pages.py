"""Pages of payments in the admin: read-only, with confirmed acts; links and columns that they share."""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote as admin_quote
from django.core.exceptions import PermissionDenied
from django.db import models
from django.db.models import F, Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import NoReverseMatch, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from idempotency.admin.labels import utc
from idempotency.admin.pages import ReadOnlyAdmin, Tool, column, in_utc, time_column
from idempotency.admin.searching import WholeTermSearch
from idempotency.conf import config
from payments.admin.badges import badge, badge_column
from payments.admin.forms import ResolutionForm
from payments.channels.accounts import account_name, provider_name
from payments.display import money, stored_text
from payments.models import AuditEntry
from payments.models.audit import subject_of
from payments.operations import actions
from payments.settlement.state import as_id

BOM = "\ufeff"  # begins a CSV: without it a spreadsheet takes UTF-8 for the encoding of its country
REQUESTS_ABOUT = {
    "payment": gettext_noop("requests about the payment"),
    "order": gettext_noop("requests about the order"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Confirmation that an operator gives before an act.

    Attributes:
        sentences: what will happen, and what will not.
        button: the words that do it.
        act: given the valid form and the operator, does it; may raise `NotDecidable`.
    """

    title: str
    sentences: list[str]
    button: str
    form: forms.Form
    act: Callable[[dict[str, Any], actions.Operator], actions.Result]


def money_column(field: str, words: Any) -> Any:
    """Make a column with the amount in `field`, as money of the row's currency."""
    return column(lambda row: money(getattr(row, field), row.currency), words)


class MoneyAdmin(WholeTermSearch, ReadOnlyAdmin):
    """Read-only pages about money, the newest row first; an operator's act is confirmed first.

    Attributes:
        acts: permission for each act about a row, by the name that its address ends with.
    """

    acts: ClassVar[Mapping[str, str]] = {}
    search_fields = ("pk",)
    ordering: ClassVar[Sequence[Any]] = ("-pk",)

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
        view, name = self.admin_site.admin_view(self.act_view), f"payments_{self.opts.model_name}"
        number = "<uuid:pk>" if isinstance(self.opts.pk, models.UUIDField) else "<int:pk>"
        acts = [path(f"{number}/{act}/", view, {"act": act}, name=f"{name}_{act}") for act in self.acts]
        return [*acts, *super().get_urls()]

    def may(self, request: HttpRequest, permission: str) -> bool:
        """Check that the user may see the rows, and do this with them."""
        allowed = not permission or request.user.has_perm(f"payments.{permission}")
        return allowed and self.has_view_permission(request)

    def require(self, request: HttpRequest, permission: str = "") -> None:
        """Refuse users who may not, before anything about a row is shown. Raises PermissionDenied."""
        if not self.may(request, permission):
            raise PermissionDenied

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

    def tool(self, request: HttpRequest, row: models.Model, act: str, words: Any) -> list[Tool]:
        """Make the button of an act; none for users who may not do it."""
        if not self.may(request, self.acts[act]):
            return []
        return [Tool(address=reverse(f"admin:payments_{self.opts.model_name}_{act}", args=[row.pk]), words=words)]

    def act_view(self, request: HttpRequest, pk: Any, act: str) -> HttpResponse:
        """Ask about an act, and do it."""
        self.require(request, self.acts[act])
        row = get_object_or_404(self.get_queryset(request), pk=pk)
        return self.ask_first(request, row, self.question(act, row, request.POST or None))

    def question(self, act: str, row: Any, given: Any) -> Question:
        """Make the question of an act, with what its form was `given`."""
        raise NotImplementedError

    def ask_first(self, request: HttpRequest, row: models.Model, question: Question) -> HttpResponse:
        """Show what will happen; do it on POST, and report on the row's page.

        A row that was resolved before leads to its page, with when and how. Not one of the admin's own views,
        because those run in a transaction, and this may call a provider.
        """
        form = question.form
        if settled_at := getattr(row, "resolved_at", None):
            about = {"at": utc(settled_at), "resolution": stored_text(getattr(row, "resolution", ""))}
            messages.warning(request, _("It has been resolved before, %(at)s UTC: %(resolution)s") % about)
            return HttpResponseRedirect(page_of(row))
        if request.method != "POST" or not form.is_valid():
            return self.own_page(
                request, "admin/payments/confirm.html", question.title, row=row, question=question, form=form
            )
        by = actions.Operator(user_id=request.user.pk, reason=form.cleaned_data["reason"])
        try:
            result = question.act(form.cleaned_data, by)
        except actions.NotDecidable as refused:
            messages.error(request, str(refused))
        else:
            for sentence in result.sentences:
                (messages.success if result.done else messages.warning)(request, sentence)
        return HttpResponseRedirect(page_of(row))


class OwnNumberAdmin(MoneyAdmin):
    """Pages of rows that have our numbers, their own and their payment's; both find them."""

    def search(self, rows: models.QuerySet[Any], term: str) -> models.QuerySet[Any]:
        ours = number_in(term)
        return rows.filter(Q(pk=ours) | Q(payment_id=ours)) if ours else rows.none()


class ResolvableAdmin(MoneyAdmin):
    """Pages of rows that a person resolves.

    Attributes:
        what_to_do_about: advice, by the row's kind.
    """

    is_decided_about = True
    # open rows have no time and come first, oldest first; then the last resolved
    ordering = (F("resolved_at").desc(nulls_first=True), "pk")
    what_to_do_about: ClassVar[Mapping[str, Any]]

    @admin.display(description=in_utc(gettext_lazy("resolved at")))
    def settled(self, row: Any) -> str:
        return utc(row.resolved_at) if row.resolved_at else badge("open")

    @admin.display(description=gettext_lazy("resolution"))
    def in_the_end(self, row: Any) -> str:
        return stored_text(row.resolution) or "-"

    @admin.display(description=gettext_lazy("what to do"))
    def what_to_do(self, row: Any) -> str:
        return self.what_to_do_with(row)

    def what_to_do_with(self, row: Any) -> str:
        """Return the advice for this row."""
        return _("Nothing to do: resolved.") if row.resolved_at else str(self.what_to_do_about[row.kind])

    def tools(self, request: HttpRequest, row: Any) -> list[Tool]:
        return [] if row.resolved_at else self.tool(request, row, "resolve", _("Resolve"))

    def stakes(self, row: Any) -> tuple[str, list[str]]:
        """Describe the row, and what follows besides from resolving it."""
        raise NotImplementedError

    def question(self, act: str, row: Any, given: Any) -> Question:
        about, more = self.stakes(row)
        return Question(
            title=_("Resolve"),
            sentences=[about, self.what_to_do(row), *more],
            button=_("Resolve it"),
            form=ResolutionForm(given),
            act=lambda form, by: actions.resolve(row, by=by),
        )


def section(title: Any, *names: str, **options: Any) -> tuple[Any, Any]:
    """Make an entry of `fieldsets`."""
    return title, {"fields": names, **options}


def page_of(row: models.Model) -> str:
    """Return the address of the row's page in the admin."""
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
    """Link the page that `SUBJECT_ADMIN` names for orders; the bare number where there is none.

    Args:
        is_whole: show all of the number, and not only what a shopper reads out: ``79D332``.
    """
    shown = order_no if is_whole else order_no[-6:].upper()
    try:
        address = reverse(config().subject_admin["order"], args=[admin_quote(order_no)])
    except (KeyError, NoReverseMatch):
        return shown
    return format_html('<a href="{}" title="{}">{}</a>', address, order_no, shown)


def link_to_ledger(kind: str, number: str) -> SafeString:
    """Link the keyed requests about it."""
    address = f"{reverse('admin:idempotency_ledgerentry_changelist')}?q={kind}:{quote(number)}"
    return format_html('<a href="{}">{}</a>', address, _(REQUESTS_ABOUT[kind]))


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


def number_in(term: str) -> uuid.UUID | None:
    """Parse one of our 32-character numbers, with or without dashes; None for anything else."""
    return as_id(term.strip().replace("-", "").lower())
