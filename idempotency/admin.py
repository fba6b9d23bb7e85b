"""The ledger in Django admin: to look at, not to change."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from idempotency.models import LedgerEntry


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """No adding, changing or deleting, by anyone."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(LedgerEntry)
class LedgerEntryAdmin(ReadOnlyAdmin):
    """Who asked for what under which key, what it was answered, and what is still open."""

    list_display = ("key", "scope", "mode", "state", "response_status", "fence", "created_at", "finished_at")
    list_filter = ("state", "mode", "response_status", "created_at")
    search_fields = ("key", "scope", "request_id")
    ordering = ("-created_at",)
    show_full_result_count = False
    list_per_page = 50
    fieldsets = (
        ("Request", {"fields": ("key", "scope", "fingerprint_hex", "mode", "request_id", "created_at")}),
        ("Execution", {"fields": ("state", "owner", "fence", "lease_until", "finished_at")}),
        ("Stored answer", {"fields": ("response_status", "response_headers", "body_text")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[LedgerEntry]:
        entries = super().get_queryset(request)
        # the list needs neither the bodies nor the digests
        return entries.defer("response_body", "fingerprint") if request.resolver_match else entries

    @admin.display(description="fingerprint")
    def fingerprint_hex(self, entry: LedgerEntry) -> str:
        return bytes(entry.fingerprint).hex()

    @admin.display(description="body")
    def body_text(self, entry: LedgerEntry) -> SafeString | str:
        if entry.response_body is None:
            return "not kept"
        return format_html("<pre>{}</pre>", bytes(entry.response_body).decode("utf-8", "replace"))
