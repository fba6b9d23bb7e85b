"""The requests that the explorer interleaves, their outside world, and the promises that no order may break."""

import itertools
import json
import threading
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models.functions import Now
from django.http import HttpRequest, JsonResponse
from django.test import RequestFactory

from idempotency.errors import Problem
from idempotency.models import LedgerEntry, State
from idempotency.modes import ATOMIC, PHASED
from idempotency.views import idempotent
from tests.system.protocol.explorer import stop

SETTINGS = {"PRINCIPAL": "tests.system.protocol.requests.everyone", "MARKER_SECONDS": 3600, "LEASE_SECONDS": 3600}
WITHOUT_REDIS = {**SETTINGS, "REDIS": None}


def everyone(request: Any) -> str:
    return "everyone"


class Broken(Exception):
    """The handler ended in an exception."""


class Outside:
    """A provider: charges once a number, however often it is asked; the witness of what was really charged."""

    def __init__(self) -> None:
        self.charged: dict[str, str] = {}
        self._lock = threading.Lock()

    def charge(self, number: str, key: str) -> None:
        with self._lock:
            self.charged.setdefault(number, key)


outside = Outside()
_answers = itertools.count(1)


@idempotent(mode=ATOMIC)
def order(request: HttpRequest) -> JsonResponse:
    """One row in the database; every execution would answer with another number."""
    stop("the effect")
    _effect(request, f"effect {next(_answers)}")
    if plan_of(request) == "refuse":
        raise Problem(409, "refused", f"No, for the {next(_answers)}th time.")
    if plan_of(request) == "break":
        raise Broken
    return JsonResponse({"answer": next(_answers)}, status=201)


@idempotent(mode=PHASED)
def charge(request: HttpRequest) -> JsonResponse:
    """Our number first, then the call, then the result; the number is the entry's, so a second run asks again."""
    number = number_of(request)
    stop("the call outside", touches="outside")
    outside.charge(number, request.headers["Idempotency-Key"])
    if plan_of(request) == "break":
        raise Broken
    if plan_of(request) == "time out":
        return JsonResponse({"state": "uncertain"}, status=202)
    stop("the result", touches="ledger")
    with transaction.atomic():
        _effect(request, f"charged {number}")
    return JsonResponse({"answer": next(_answers)}, status=201)


BOTH = pytest.mark.parametrize("view", [order, charge], ids=["atomic", "phased"])


def number_of(request: Any) -> str:
    """The order number of the call outside: the entry's, so a forgotten entry would get another."""
    return str(LedgerEntry.objects.get(key=request.headers["Idempotency-Key"]).pk)


def plan_of(request: HttpRequest) -> str:
    """What the handler is to do; no part of what the key stands for."""
    return request.headers["X-Plan"]


def _effect(request: HttpRequest, name: str) -> None:
    Group.objects.get_or_create(name=f"{request.headers['Idempotency-Key']} {name}")


def effects(key: str) -> int:
    """How often what `key` asks for has happened in the database."""
    return Group.objects.filter(name__startswith=f"{key} ").count()


def send(view: Any, key: str, body: str = "{}", plan: str = "succeed") -> tuple[int, str]:
    """Status and body of one request."""
    headers = {"Idempotency-Key": key, "X-Plan": plan}
    request = RequestFactory().post("/protocol", body, content_type="application/json", headers=headers)
    try:
        response = view(request)
    except Broken:
        return 500, ""
    return response.status_code, response.content.decode()


def end_leases() -> None:
    """Leases are over, as the database's clock sees it."""
    LedgerEntry.objects.filter(state=State.RUNNING).update(lease_until=Now() - timedelta(seconds=1))


def drop_markers(server: redis.Redis, *kinds: bytes) -> None:
    """The lives of markers of these kinds are over."""
    for name in server.keys("*:key:*"):
        if (server.get(name) or b"").startswith(kinds):
            server.delete(name)


def let_time_pass(server: redis.Redis) -> None:
    """Nothing of the dead holds a retry off any more."""
    drop_markers(server, b"R")
    end_leases()


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
