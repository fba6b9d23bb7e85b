"""A view that hands its work to Celery and waits for the result."""

import json

from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from doors.tasks import SECONDS, leave


@csrf_exempt
def enqueue(request: HttpRequest) -> JsonResponse:
    """Answer with the task's result, or with its error."""
    task = leave.delay(**json.loads(request.body))
    result = task.get(timeout=SECONDS, propagate=False)
    if task.successful():
        return JsonResponse(result, status=201)
    return JsonResponse({"error": str(result)}, status=422)


urlpatterns = [path("notes/", enqueue)]
