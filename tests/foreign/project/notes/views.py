"""The front page, which gives a guest a session and a CSRF token, and two ways of writing the same keyed view."""

import json
import sys
from typing import Any

from django.http import HttpRequest, JsonResponse
from django.utils.decorators import method_decorator
from django.views import View
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
    return _leave(request)


@method_decorator(idempotent(), name="post")
class Leave(View):
    """The same, as a class."""

    def post(self, request: HttpRequest) -> JsonResponse:
        return _leave(request)


def modules(request: HttpRequest) -> JsonResponse:
    """What this process has imported, and where the package was found."""
    return JsonResponse({"imported": sorted(sys.modules), "found": idempotency.__file__})


def _leave(request: Any) -> JsonResponse:
    note = Note.objects.create(text=json.loads(request.body)["text"])
    call_of(request).about("note", note.pk)
    return JsonResponse({"id": note.pk, "text": note.text}, status=201)
