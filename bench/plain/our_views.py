"""The keyed views, as a user of the wheel writes them."""

import json

from django.db import transaction
from django.http import HttpRequest, JsonResponse

from bench.plain.models import Purchase
from bench.plain.views import content, created, insert
from idempotency.modes import ATOMIC, PHASED
from idempotency.views import idempotent


@idempotent(mode=ATOMIC)
def keyed(request: HttpRequest) -> JsonResponse:
    """Commit the row, the ledger's row and the answer together, in the transaction of the decorator."""
    return created(insert(request))


@idempotent(mode=PHASED)
def phased(request: HttpRequest) -> JsonResponse:
    """Insert in a transaction of its own. The mode asks that a handler resumes, so look for the row first."""
    if request.idempotency.resumed:  # type: ignore[attr-defined]
        reference = json.loads(request.body)["reference"]
        found = Purchase.objects.filter(reference=reference).first()
        if found is not None:
            return created(content(found))
    with transaction.atomic():
        answer = insert(request)
    return created(answer)
