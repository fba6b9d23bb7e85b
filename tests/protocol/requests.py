"""The requests that the explorer interleaves, their outside world, and the promises that no order may break."""

import itertools
import json
import threading
from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.test import RequestFactory

from idempotency.modes import ATOMIC, PHASED
from idempotency.views import idempotent
from tests.protocol.explorer import stop

SETTINGS = {"PRINCIPAL": "tests.protocol.requests.everyone", "MARKER_SECONDS": 3600, "LEASE_SECONDS": 3600}


def everyone(request: Any) -> str:
    return "everyone"


class Outside:
    """A provider: charges once a number, however often it is asked; the witness of what was really charged."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self._lock = threading.Lock()

    def charge(self, number: str) -> None:
        with self._lock:
            if number not in self.charged:
                self.charged.append(number)


outside = Outside()
_answers = itertools.count(1)


@idempotent(mode=ATOMIC)
def order(request: HttpRequest) -> JsonResponse:
    """One row in the database; every execution would answer with another number."""
    stop("the effect")
    Group.objects.create(name=f"effect {next(_answers)}")
    return JsonResponse({"answer": next(_answers)}, status=201)


@idempotent(mode=PHASED)
def charge(request: HttpRequest) -> JsonResponse:
    """Our number first, then the call, then the result; the number is the key's, so a second run asks again."""
    number = number_of(request)
    stop("the call outside", touches="outside")
    outside.charge(number)
    stop("the result", touches="ledger")
    with transaction.atomic():
        Group.objects.get_or_create(name=f"charged {number}")
    return JsonResponse({"answer": next(_answers)}, status=201)


def number_of(request: Any) -> str:
    """The order number of the call outside."""
    return str(request.idempotency.key_digest)


def send(view: Any, key: str, body: str = "{}") -> tuple[int, str]:
    """Status and body of one request."""
    request = RequestFactory().post(
        "/protocol", body, content_type="application/json", headers={"Idempotency-Key": key}
    )
    response = view(request)
    return response.status_code, response.content.decode()


def check(answers: list[tuple[int, str]], last: tuple[int, str]) -> None:
    """What every order must keep.

    Args:
        answers: what those heard who lived to hear it.
        last: what a retry hears after everything is over.
    """
    effects = Group.objects.count()
    assert effects == 1, f"{effects} effects in the database"
    assert len(outside.charged) <= 1, f"charged {len(outside.charged)} times outside"
    assert last[0] == 201, f"the retry hears {last}"
    heard = {body for status, body in answers if status == 201} | {last[1]}
    assert len(heard) == 1, f"different answers: {sorted(heard)}"
    for status, body in answers:
        assert status in {201, 409}, f"{status}: {body}"
        assert status == 201 or json.loads(body)["code"] == "idempotency_in_progress", body
