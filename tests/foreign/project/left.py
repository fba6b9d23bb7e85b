"""Settings and addresses of the project without the package: before it came, and after it left."""

import json

from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from settings import *  # noqa: F403

ROOT_URLCONF = "left"


@csrf_exempt
def leave(request: HttpRequest) -> JsonResponse:
    from notes.models import Note

    note = Note.objects.create(text=json.loads(request.body)["text"])
    return JsonResponse({"id": note.pk, "text": note.text}, status=201)


urlpatterns = [path("notes/", leave)]
