"""A view that hands its work to Celery and waits for the result."""

import json

from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from doors.tasks import SECONDS, leave
from idempotency import Problem


@csrf_exempt
def enqueue(request: HttpRequest) -> JsonResponse:
    """Answer with the task's result, or with its problem."""
    try:
        result = leave.delay(**json.loads(request.body)).get(timeout=SECONDS)
    except Problem as problem:
        return JsonResponse({"code": problem.code}, status=problem.status)
    return JsonResponse(result, status=201)


urlpatterns = [path("notes/", enqueue)]
