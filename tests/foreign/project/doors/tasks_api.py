"""A task of `django.tasks`, enqueued by a view; its backend runs it at once."""

import json

from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from notes.models import Note

from idempotency import once

try:
    from django.tasks import task
except ImportError:  # before Django 6 a package of its own
    from django_tasks import task


@task
@once.task("notes.leave", key=lambda key: key, payload=lambda text: text, principal=lambda user: user, wait=60)
def leave(text: str, key: str, user: str) -> dict[str, object]:
    """Leave a note once."""
    note = Note.objects.create(text=text)
    return {"id": note.pk, "text": note.text}


@csrf_exempt
def enqueue(request: HttpRequest) -> JsonResponse:
    """Answer with the task's result, or with its problem."""
    done = leave.enqueue(**json.loads(request.body))
    if done.errors:
        problem = done.errors[0].exception_class()
        return JsonResponse({"code": problem.code}, status=problem.status)
    return JsonResponse(done.return_value, status=201)


urlpatterns = [path("notes/", enqueue)]
