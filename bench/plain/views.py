"""The view without a key, as a team writes it. Every other view does the work of this one."""

import os
import signal
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from bench.plain.models import Order


@dataclass(frozen=True, slots=True)
class Caller:
    """The part of a user that a keyed view needs."""

    pk: int
    is_authenticated: bool = True
    is_active: bool = True


class HeaderAuthentication(BaseAuthentication):
    """Authentication without SQL, `X-User: 7`: the figures show the key's cost alone."""

    def authenticate(self, request: Request) -> tuple[Any, None]:
        """Take the caller from the header."""
        return Caller(pk=int(request.headers["X-User"])), None


class Orders(APIView):
    """Resource of orders, without keys."""

    authentication_classes = (HeaderAuthentication,)
    permission_classes = (IsAuthenticated,)

    def post(self, request: Request) -> Response:
        """Place an order."""
        return created(place(request))


class IdleOrders(Orders):
    """Orders that are never placed."""

    def post(self, request: Request) -> Response:
        """Answer as if one had been."""
        return created({"id": 1})


def place(request: Request) -> dict[str, Any]:
    """Insert the order that the body asks for; return the content of the answer.

    With the header `X-Die: after-commit` the process ends itself by SIGKILL as soon as the outermost transaction
    has committed: nothing that a view or a middleware would do after that is done.

    Transaction: a block of its own.
    """
    with transaction.atomic():
        order = Order.objects.create(reference=request.data["reference"], amount=request.data["amount"])
        if request.headers.get("X-Die") == "after-commit":
            transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
    return content(order)


def content(order: Order) -> dict[str, Any]:
    """Return the content of the answer about an order."""
    return {"id": order.pk, "reference": order.reference, "amount": order.amount}


def created(answer: dict[str, Any]) -> Response:
    """Answer 201 with the order and its address."""
    return Response(answer, status=201, headers={"Location": f"/orders/{answer['id']}"})
