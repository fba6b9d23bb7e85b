"""Ledger in Django admin: read only, but an operator may close an entry without outcome."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import NoReverseMatch, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator, format_lazy
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from idempotency.admin import answer_display, charts, log_display, searching
from idempotency.admin.decision_form import DecisionForm
from idempotency.admin.filters import NeedsAPerson, newest
from idempotency.admin.labels import condition, utc
from idempotency.admin.locks import DECIDE, LockPages
from idempotency.admin.pages import ReadOnlyAdmin, Tool, column, time_column, time_of
from idempotency.admin.searching import WholeTermSearch
from idempotency.conf import config
from idempotency.maintenance.decisions import NotDecidable
from idempotency.models import MODES, ConsumedMessage, LedgerEntry, State
from idempotency.modes import Mode
from idempotency.observability import statistics
from idempotency.protocol.recovery import NotAbandonable

KEY_SHOWN, SUBJECT_SHOWN, SCOPE_SHOWN = 32, 21, 60  # characters, in the list
STATUSES = [(str(status), str(status)) for status in (200, 201, 202, 204, 302, 303, 402, 404, 409, 410, 412, 422)]
OPEN_SHOWN = 20
DECIDED = {
    "resolved": _("The entry is resolved; its key is answered with that from now on."),
    "abandoned": _("The entry is abandoned; its key is answered with that from now on."),
}


@admin.register(LedgerEntry)
class LedgerEntryAdmin(WholeTermSearch, LockPages):
    """Entry of one key of one caller on one route: its request, its runs, its answer."""

    appears = _("An entry appears when a request with a key is executed.")
    list_display = ("condition", "short_key", "status", "short_subject", "short_scope", "mode", "created")
    list_display_links = ("condition", "short_key")
    list_filter = (
        *(NeedsAPerson, "state", "created_at"),
        *(newest("mode", MODES), newest("response_status", STATUSES)),
    )
    search_fields = ("key",)
    search_help_text = format_lazy(
        _(
            "A whole key or subject (order:0190…); of the newest {newest:,} entries also a whole request"
            " id or key digest, or the beginning of a scope (user:7 POST). At most {most:,} are found of each."
        ),
        newest=searching.LOOKED_AT,
        most=searching.FOUND_MAX,
    )
    ordering = ("-pk",)
    is_decided_about = True

    def get_queryset(self, request: HttpRequest) -> QuerySet[LedgerEntry]:
        return super().get_queryset(request).defer("response_body", "fingerprint", "recovery_data")

    def search(self, rows: QuerySet[LedgerEntry], term: str) -> QuerySet[LedgerEntry]:
        return rows.filter(pk__in=searching.entries(rows, term, scopes=True))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Leave out lease and answer where the entry cannot have one."""
        execution = ["condition", "process", "history"]
        if obj is not None and obj.mode == Mode.PHASED:
            execution += ["handler", "recovery_point", "fence", "lease"]
        answer = ["status", "headers", "body"]
        if obj is not None and obj.state != State.FINISHED:
            answer = ["body"]
        request_fields = ["key", "scope", "about", "fingerprint_hex", "mode", "request_id", "created"]
        return [
            (None, {"fields": request_fields}),
            (_("Request log"), {"fields": ["calls"]}),
            (_("Execution"), {"fields": execution}),
            (_("Stored answer"), {"fields": answer}),
        ]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        texts = {
            "handler": _("its Phases, if it is made of recovery points"),
            "recovery_point": _("where a retry resumes"),
        }
        return super().get_form(request, obj, change, **{"help_texts": texts, **kwargs})

    def get_urls(self) -> list[Any]:
        own = [
            path("statistics/", self.admin_site.admin_view(self.statistics_view), name="idempotency_statistics"),
            path("<int:pk>/decide/", self.admin_site.admin_view(self.decide_view), name="idempotency_decide"),
        ]
        return own + self.lock_urls() + super().get_urls()

    def list_tools(self, request: HttpRequest) -> list[Tool]:
        return [
            Tool(address=reverse("admin:idempotency_statistics"), words=_("Charts")),
            Tool(address=reverse("admin:idempotency_locks"), words=_("Locks")),
        ]

    def tools(self, request: HttpRequest, row: LedgerEntry) -> list[Tool]:
        if self.lacks(request, DECIDE) or not _is_open(row):
            return []
        return [Tool(address=reverse("admin:idempotency_decide", args=[row.pk]), words=_("Resolve or abandon"))]

    condition = column(condition, _("state"))
    short_key = column(lambda entry: Truncator(entry.key).chars(KEY_SHOWN), _("key"))
    short_scope = column(lambda entry: Truncator(entry.scope).chars(SCOPE_SHOWN), _("scope"))
    status = column(lambda entry: str(entry.response_status or gettext("none yet")), _("answer"))
    created = time_column("created_at")
    lease = time_column("lease_until")
    fingerprint_hex = column(lambda entry: bytes(entry.fingerprint).hex(), _("fingerprint"))
    headers = column(lambda entry: answer_display.lines(entry.response_headers), _("response headers"))
    body = column(answer_display.body, _("body"))
    process = column(lambda entry: entry.owner, _("process"))
    calls = column(log_display.table, _("calls"))

    @admin.display(description=_("subject"))
    def short_subject(self, entry: LedgerEntry) -> SafeString | str:
        """Show both ends: ids of one moment begin alike."""
        whole = entry.subject
        if len(whole) <= SUBJECT_SHOWN:
            return whole or "-"
        return format_html('<span title="{}">{}…{}</span>', whole, whole[: SUBJECT_SHOWN - 7], whole[-6:])

    @admin.display(description=_("about"))
    def about(self, entry: LedgerEntry) -> SafeString | str:
        """Link the subject to its page (``SUBJECT_ADMIN``), and to other requests about it."""
        if not entry.subject:
            return gettext("unknown")
        kind, _, identifier = entry.subject.partition(":")
        query = urlencode({"q": entry.subject})
        others = f"{reverse('admin:idempotency_ledgerentry_changelist')}?{query}"
        more = format_html('<a href="{}">{}</a>', others, gettext("all requests about it"))
        try:
            address = reverse(config().subject_admin[kind], args=[identifier])
        except (KeyError, NoReverseMatch):
            return format_html("{} · {}", entry.subject, more)
        return format_html('<a href="{}">{}</a> · {}', address, entry.subject, more)

    @admin.display(description=_("history"))
    def history(self, entry: LedgerEntry) -> SafeString:
        rows = [(utc(event.at), event.what, event.who, event.note) for event in log_display.timeline(entry)]
        lines = format_html_join("", "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>", rows)
        heads = format_html_join("", "<th>{}</th>", [("UTC",), (_("what"),), (_("who"),), (_("remark"),)])
        table = '<table class="ledger-history"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>'
        return format_html(table, heads, lines)

    def statistics_view(self, request: HttpRequest) -> HttpResponse:
        self.require(request)
        still_open = statistics.open_entries()
        oldest_open = LedgerEntry.objects.exclude(state=State.FINISHED).order_by("created_at")
        context: dict[str, Any] = {
            "chart": charts.draw(statistics.executed_by_hour()),
            "newest": f"{statistics.NEWEST_MAX:,}",
            "open": [(state.count, gettext(state.name)) for state in still_open],
            "total_open": sum(state.count for state in still_open),
            "lines": charts.ages(list(oldest_open[:OPEN_SHOWN])),
            "hours": statistics.HOURS_SHOWN,
        }
        template = "admin/idempotency/ledgerentry/statistics.html"
        return self.own_page(request, template, _("Keyed requests"), **context)

    def decide_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Resolve or abandon an entry: shown first, done on POST."""
        self.require(request, DECIDE)
        entry = get_object_or_404(LedgerEntry, pk=pk)
        detail = reverse("admin:idempotency_ledgerentry_change", args=[pk])
        if not _is_open(entry):
            messages.error(
                request, _("This entry is finished, or its handler is still running; nothing to decide.")
            )
            return HttpResponseRedirect(detail)
        form = DecisionForm(request.POST or None, initial={"fence": entry.fence})
        if request.method == "POST" and form.is_valid():
            try:
                done = form.decide(entry_id=pk, operator=f"operator {request.user.get_username()}")
            except NotDecidable:
                messages.error(request, _("The entry changed since you looked at it. Look again."))
            except NotAbandonable as refused:
                messages.error(request, str(refused))
            else:
                self.log_decision(request, entry, f"{done}: {form.cleaned_data['note']}")
                messages.success(request, DECIDED[done])
            return HttpResponseRedirect(detail)
        context: dict[str, Any] = {
            "entry": entry,
            "about": self.about(entry),
            "condition": condition(entry),
            "form": form,
            "history": self.history(entry),
        }
        template = "admin/idempotency/ledgerentry/decide.html"
        return self.own_page(request, template, _("Resolve or abandon"), **context)


def _is_open(entry: LedgerEntry) -> bool:
    """Check that an operator can decide: phased, unfinished, and not running."""
    held = entry.state == State.RUNNING and entry.lease_until is not None and entry.lease_until > timezone.now()
    return entry.mode == Mode.PHASED and entry.state != State.FINISHED and not held


@admin.register(ConsumedMessage)
class ConsumedMessageAdmin(WholeTermSearch, ReadOnlyAdmin):
    appears = _("A message appears when a consumer has applied it.")
    list_display = ("message_id", "consumer", time_of("consumed_at"))
    fields = list_display
    list_filter = (newest("consumer"), "consumed_at")
    search_fields = ("message_id",)
    searched = ("consumer", "message_id")
    search_help_text = _("A whole message id.")
    ordering = ("-pk",)
