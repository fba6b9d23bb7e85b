"""The business, and the view without a key. Every other view calls one of the two."""

import json
import os
import signal
from typing import Any

from django.db import transaction
from django.http import HttpRequest, JsonResponse

from bench.plain.models import Purchase


def insert(request: HttpRequest) -> dict[str, Any]:
    """Insert the row that the body asks for, in the transaction of the caller; return the content of the answer.

    With the header `X-Die: after-commit` the process ends itself by SIGKILL as soon as the business transaction
    has committed: nothing that a view or a middleware would do after that is done.
    """
    body = json.loads(request.body)
    purchase = Purchase.objects.create(reference=body["reference"], amount=body["amount"])
    if request.headers.get("X-Die") == "after-commit":
        transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
    return content(purchase)


def content(purchase: Purchase) -> dict[str, Any]:
    """Return the content of the answer about a row."""
    return {"id": purchase.pk, "reference": purchase.reference, "amount": purchase.amount}


def created(answer: dict[str, Any]) -> JsonResponse:
    """Answer 201 with the row and its address."""
    return JsonResponse(answer, status=201, headers={"Location": f"/purchases/{answer['id']}"})


def bare(request: HttpRequest) -> JsonResponse:
    """Do the work without a key, in one transaction of its own."""
    with transaction.atomic():
        answer = insert(request)
    return created(answer)
