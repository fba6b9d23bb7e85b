"""Pages of a name's locks: who holds them, and their release by force."""

from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.core.validators import RegexValidator
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from idempotency.admin import lock_display
from idempotency.admin.labels import utc
from idempotency.admin.lock_kinds import KINDS
from idempotency.admin.pages import ReadOnlyAdmin, reason_field
from idempotency.locks import Owner

DECIDE = "close_ledgerentry"  # the permission
WAITERS_SHOWN = 20


class ReleaseForm(forms.Form):
    note = reason_field(
        gettext_lazy("How you know that the holder does not work any more. It is logged under your name.")
    )


class LockWanted(forms.Form):
    """Hold that a link names: by holder or token, where the kind has holders."""

    name = forms.CharField(strip=False, validators=[RegexValidator("^[^}]")])
    kind = forms.ChoiceField(choices=[(kind, kind) for kind in KINDS])
    holder = forms.CharField(strip=False, required=False)
    token = forms.IntegerField(required=False)

    def clean(self) -> None:
        named = self.cleaned_data.get("holder") or self.cleaned_data.get("token") is not None
        if (kind := self.cleaned_data.get("kind")) and KINDS[kind].has_holders != bool(named):
            raise forms.ValidationError("no hold")


class LockPages(ReadOnlyAdmin):
    def lock_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        return [
            path("locks/", view(self.locks_view), name="idempotency_locks"),
            path("locks/release/", view(self.release_view), name="idempotency_release_lock"),
        ]

    def locks_view(self, request: HttpRequest) -> HttpResponse:
        self.require(request)
        name = request.GET.get("name", "").strip()
        context: dict[str, Any] = {"name": name, "locks": [], "fault": ""}
        if name:
            try:
                context["locks"] = [self._row(request, name, lock) for lock in lock_display.shown(name)]
            except ValueError:
                context["fault"] = _("The name of a lock must not be empty or begin with a closing brace.")
        return self.own_page(request, "admin/idempotency/ledgerentry/locks.html", _("Locks"), **context)

    def release_view(self, request: HttpRequest) -> HttpResponse:
        """Take a lock from its holder: shown first, done on POST."""
        self.require(request, DECIDE)
        wanted = LockWanted(request.GET)
        if not wanted.is_valid():
            return HttpResponseRedirect(reverse("admin:idempotency_locks"))
        hold = wanted.cleaned_data
        kind, name = hold["kind"], hold["name"]
        back = f"{reverse('admin:idempotency_locks')}?{urlencode({'name': name})}"
        owner = lock_display.owner_of(**hold)
        if owner is None and KINDS[kind].has_holders:
            gone = _("This holder does not have the lock any more, or its server does not reply.")
            messages.error(request, gone)
            return HttpResponseRedirect(back)
        form = ReleaseForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            note = form.cleaned_data["note"]
            replied, sentence = lock_display.release_by_force(kind, name, owner, user=request.user, note=note)
            messages.add_message(request, messages.SUCCESS if replied else messages.ERROR, sentence)
            return HttpResponseRedirect(back)
        context = {
            "form": form,
            "lock": hold,
            "words": KINDS[kind].words,
            "holder": lock_display.in_words(owner) if owner else "",
            "back": back,
        }
        template = "admin/idempotency/ledgerentry/release_lock.html"
        return self.own_page(request, template, _("Release a lock by force"), **context)

    def _row(self, request: HttpRequest, name: str, lock: lock_display.ShownLock) -> dict[str, Any]:
        waiters = lock.state.waiters if lock.state else ()
        may = not self.lacks(request, DECIDE)
        return {
            "words": lock.words,
            "error": lock.error,
            "facts": lock.facts,
            "holds": [
                (hold, *_in_columns(hold), _address(lock, name, hold) if may else "") for hold in lock.holds
            ],
            "waiting": len(waiters),
            "waiters": waiters[:WAITERS_SHOWN],
        }


def _in_columns(owner: Owner | None) -> tuple[str, str]:
    return (utc(owner.since), lock_display.lease_left(owner)) if owner else ("", "")


def _address(lock: lock_display.ShownLock, name: str, owner: Owner | None) -> str:
    hold = {"holder": owner.name, "token": owner.token} if owner else {}
    query = {key: value for key, value in {"name": name, "kind": lock.kind, **hold}.items() if value is not None}
    return f"{reverse('admin:idempotency_release_lock')}?{urlencode(query)}"
