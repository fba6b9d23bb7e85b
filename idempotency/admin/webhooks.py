"""Webhook events in Django admin: read only, but an operator may apply one by hand."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.db.transaction import non_atomic_requests
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import path, reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from idempotency.admin import answer_display
from idempotency.admin.filters import newest
from idempotency.admin.pages import ReadOnlyAdmin, Tool, column, reason_field, time_column
from idempotency.admin.searching import WholeTermSearch
from idempotency.models import EventStatus, WebhookEvent
from idempotency.postgres import home
from idempotency.webhooks import NotReplayable, replay

REPLAY = "replay_webhookevent"  # the permission


class ReplayForm(forms.Form):
    note = reason_field(_("It is stored with the event under your name."), max_length=1000)


@admin.register(WebhookEvent)
class WebhookEventAdmin(WholeTermSearch, ReadOnlyAdmin):
    """Event of a sender, however many copies of it arrived."""

    appears = _("An event appears when a sender delivers it.")
    list_display = ("event_id", "status", "sender", "entity", "sequence", "received", "attempts")
    list_filter = (newest("status", EventStatus.choices), newest("sender"))
    search_fields = ("event_id",)
    searched = ("sender", "event_id")
    search_help_text = _("A whole id of the sender's.")
    ordering = ("-pk",)
    fieldsets = (
        (None, {"fields": ("event_id", "sender", "entity", "sequence", "received")}),
        (_("Handling"), {"fields": ("status", "attempts", "error", "due", "applied", "note")}),
        (_("As received"), {"fields": ("headers_text", "body_text")}),
    )
    is_decided_about = True

    received = time_column("received_at")
    applied = time_column("applied_at")
    due = time_column("due_at", _("no worker before"))
    headers_text = column(lambda row: answer_display.lines(row.headers), _("headers"))
    body_text = column(
        lambda row: gettext("removed") if row.body is None else answer_display.content(bytes(row.body)), _("body")
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookEvent]:
        return super().get_queryset(request).defer("body", "headers")

    def get_urls(self) -> list[Any]:
        view = non_atomic_requests(using=home.alias())(self.admin_site.admin_view(self.replay_view))
        return [path("<int:pk>/replay/", view, name="idempotency_replay"), *super().get_urls()]

    def tools(self, request: HttpRequest, row: WebhookEvent) -> list[Tool]:
        if row.status == EventStatus.APPLIED or self.lacks(request, REPLAY):
            return []
        return [Tool(address=reverse("admin:idempotency_replay", args=[row.pk]), words=_("Apply now"))]

    def replay_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Apply an event: shown first, done on POST.

        Not one of the admin's own views, because those run in a transaction; nor in that of ATOMIC_REQUESTS.
        """
        self.require(request, REPLAY)
        row = get_object_or_404(WebhookEvent, pk=pk)
        form = ReplayForm(request.POST or None)
        if request.method != "POST" or not form.is_valid():
            template = "admin/idempotency/webhookevent/replay.html"
            return self.own_page(request, template, _("Apply now"), row=row, form=form)
        note = form.cleaned_data["note"]
        try:
            result = replay(pk, operator=f"operator {request.user.get_username()}", note=note)
        except NotReplayable as refused:
            messages.error(request, str(refused))
        else:
            self.log_decision(request, row, f"{result}: {note}")
            done = result == EventStatus.APPLIED
            (messages.success if done else messages.error)(
                request, gettext("The event is %(status)s.") % {"status": EventStatus(result).label}
            )
        return HttpResponseRedirect(reverse("admin:idempotency_webhookevent_change", args=[pk]))
