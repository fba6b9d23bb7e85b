"""Pages of the locks beside the ledger's: who holds a name's locks, and their release by force.

They need the permission to decide about entries (`idempotency.close_ledgerentry`), a reason, and leave a line in
the admin's log.
"""

import logging
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse

from idempotency.admin import lock_display
from idempotency.admin.labels import utc
from idempotency.admin.pages import ReadOnlyAdmin, reason_field
from idempotency.locks import LockError, Owner

log = logging.getLogger(__name__)

WAITERS_SHOWN = 20


class ReleaseForm(forms.Form):
    """An operator's decision to take a lock from its holder."""

    note = reason_field("How you know that the holder does not work any more. It is logged under your name.")


class LockWanted(forms.Form):
    """Hold that a link names."""

    name = forms.CharField(strip=False)
    kind = forms.ChoiceField(choices=[(kind, kind) for kind in lock_display.OF_REDIS])
    token = forms.IntegerField()


class LockPages(ReadOnlyAdmin):
    """The two pages, for the admin of the ledger."""

    def lock_urls(self) -> list[Any]:
        """Make the addresses of the pages."""
        view = self.admin_site.admin_view
        return [
            path("locks/", view(self.locks_view), name="idempotency_locks"),
            path("locks/release/", view(self.release_view), name="idempotency_release_lock"),
        ]

    def locks_view(self, request: HttpRequest) -> HttpResponse:
        """Show who holds the locks of a name, and who waits."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        name = request.GET.get("name", "").strip()
        context: dict[str, Any] = {"name": name, "locks": [], "fault": ""}
        if name:
            try:
                context["locks"] = [self._row(request, name, lock) for lock in lock_display.shown(name)]
            except ValueError as error:
                context["fault"] = str(error)
        return self.own_page(request, "admin/idempotency/ledgerentry/locks.html", "Locks", **context)

    def release_view(self, request: HttpRequest) -> HttpResponse:
        """Take a lock from its holder: shown first, done on POST."""
        if not self._may_release(request):
            raise PermissionDenied
        wanted = LockWanted(request.GET)
        if not wanted.is_valid():
            return HttpResponseRedirect(reverse("admin:idempotency_locks"))
        hold = wanted.cleaned_data
        back = f"{reverse('admin:idempotency_locks')}?{urlencode({'name': hold['name']})}"
        owner = lock_display.owner_of(**hold)
        if owner is None:
            messages.error(request, "This holder does not have the lock any more, or Redis does not reply.")
            return HttpResponseRedirect(back)
        form = ReleaseForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            self._release(request, hold, owner, form.cleaned_data["note"])
            return HttpResponseRedirect(back)
        words = lock_display.KINDS[hold["kind"]][0]
        context = {
            "form": form,
            "lock": hold,
            "words": words,
            "holder": lock_display.in_words(owner),
            "back": back,
        }
        template = "admin/idempotency/ledgerentry/release_lock.html"
        return self.own_page(request, template, "Release a lock by force", **context)

    def _release(self, request: HttpRequest, hold: dict[str, Any], owner: Owner, note: str) -> None:
        level = messages.SUCCESS
        try:
            done = "released by force" if lock_display.release(**hold) else "not held by it any more"
        except LockError as error:
            level, done = messages.ERROR, f"release by force without a reply ({error})"
        what = f"{hold['kind']} {hold['name']!r}"
        LogEntry.objects.create(
            user_id=int(request.user.pk or 0),
            content_type=ContentType.objects.get_for_model(self.model),
            object_repr=what[:200],
            action_flag=CHANGE,
            change_message=f"{done}, held by {lock_display.in_words(owner)}: {note}",
        )
        log.warning("%s: %s %s, held by %s: %s", request.user.get_username(), what, done, owner.name, note)
        messages.add_message(request, level, f"{what}: {done}. A holder learns that when it renews its lease.")

    def _row(self, request: HttpRequest, name: str, lock: lock_display.ShownLock) -> dict[str, Any]:
        owners, waiters = (lock.state.owners, lock.state.waiters) if lock.state else ((), ())
        address = ""
        if lock.is_releasable and self._may_release(request):
            address = f"{reverse('admin:idempotency_release_lock')}?{urlencode({'name': name, 'kind': lock.kind})}"
        return {
            "words": lock.words,
            "error": lock.error,
            "owners": [(owner, utc(owner.since), lock_display.lease_left(owner)) for owner in owners],
            "waiting": len(waiters),
            "waiters": waiters[:WAITERS_SHOWN],
            "release": address,
        }

    def _may_release(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and request.user.has_perm("idempotency.close_ledgerentry")
