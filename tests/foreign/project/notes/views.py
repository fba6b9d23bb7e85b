"""The front page, which gives a guest a session and a CSRF token, and a keyed view."""

import json
import sys

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_POST

import idempotency
from idempotency import call_of
from idempotency.views import idempotent
from notes.models import Note


@ensure_csrf_cookie
def front(request: HttpRequest) -> JsonResponse:
    """How many notes there are."""
    request.session["seen"] = True
    return JsonResponse({"notes": Note.objects.count()})


@require_POST
@idempotent()
def leave(request: HttpRequest) -> JsonResponse:
    """Leave a note."""
    note = Note.objects.create(text=json.loads(request.body)["text"])
    call_of(request).about("note", note.pk)
    return JsonResponse({"id": note.pk, "text": note.text}, status=201)


def modules(request: HttpRequest) -> JsonResponse:
    """What this process has imported, and where the package was found."""
    return JsonResponse({"imported": sorted(sys.modules), "found": idempotency.__file__})
