"""One view in each mode, whose effect is a row of `auth_group`, directed by `PLAN`.

The handler is written so that it suits both modes: it says no before it writes, and it writes in a transaction of
its own, so that a handler that breaks leaves nothing and may run again.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from idempotency.drf import TokenList
from idempotency.drf import idempotent as idempotent_method
from idempotency.modes import ATOMIC, PHASED

BREAK = 0  # as an answer: raise instead


@dataclass
class Plan:
    """Orders for the next runs of the handler; with none left, an ordinary 201.

    Attributes:
        during: called inside the handler, each by one run.
        answers: statuses.
        runs: how often the handler ran at all.
    """

    during: list[Callable[[], object]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    runs: list[Any] = field(default_factory=list)

    def clear(self) -> None:
        for planned in (self.during, self.answers, self.runs):
            planned.clear()


PLAN = Plan()


def act(request: Request) -> Response:
    PLAN.runs.append(request.data)
    if PLAN.during:
        PLAN.during.pop(0)()
    status = PLAN.answers.pop(0) if PLAN.answers else 201
    if status >= 400:
        return Response({"code": "no"}, status=status)
    with transaction.atomic():
        made = Group.objects.create(name=f"{request.data['name']} {uuid.uuid4()}")
        if status == BREAK:
            raise RuntimeError("the handler broke")
    headers = {"Location": f"/things/{made.pk}", "ETag": f'"{made.pk}"'}
    return Response({"id": made.pk, "名": made.name}, status=status, headers=headers)


class AtomicThings(APIView):
    @idempotent_method(mode=ATOMIC)
    def post(self, request: Request) -> Response:
        return act(request)


class PhasedThings(APIView):
    @idempotent_method(mode=PHASED)
    def post(self, request: Request) -> Response:
        return act(request)


urlpatterns = [
    path("atomic", AtomicThings.as_view()),
    path("phased", PhasedThings.as_view()),
    path("tokens", TokenList.as_view()),
]
