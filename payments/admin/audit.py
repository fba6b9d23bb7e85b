"""Audit entries in the admin: operators' acts about money, by whom and why."""

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from idempotency.admin.pages import time_column
from idempotency.admin.searching import LOOKED_AT, numbers_among_newest, numbers_of
from payments.admin.pages import MoneyAdmin
from payments.models import AuditEntry


@admin.register(AuditEntry)
class AuditEntryAdmin(MoneyAdmin):
    """Every act once, the newest first; nobody can change one."""

    appears = _("An entry appears when an operator refunds, records or resolves something.")
    list_display = ("at", "operator", "about", "message")
    search_help_text = format_lazy(
        _("A whole subject (anomaly:7), or a user name among the newest {newest:,} entries, as it was then."),
        newest=LOOKED_AT,
    )
    fields = ("at", "operator", "operator_id", "about", "message")

    def search(self, rows: QuerySet[AuditEntry], term: str) -> QuerySet[AuditEntry]:
        found = numbers_of(rows.filter(subject=term), "subject") | numbers_among_newest(rows, Q(operator=term))
        return rows.filter(pk__in=found)

    at = time_column("created_at", _("at"))

    @admin.display(description=_("about"))
    def about(self, entry: AuditEntry) -> SafeString | str:
        """Link the row's page, without looking the row up."""
        model, _, number = entry.subject.partition(":")
        try:
            address = reverse(f"admin:payments_{model}_change", args=[number])
        except NoReverseMatch:
            return entry.subject
        return format_html('<a href="{}">{}</a>', address, entry.subject)
