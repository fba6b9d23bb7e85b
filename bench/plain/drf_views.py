"""The same work in Django REST framework: bare, and keyed by the peers that ask for it."""

from typing import Any

from django.db import transaction
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from bench.plain.views import insert


def created(answer: dict[str, Any]) -> Response:
    """201 with the row and where it is."""
    return Response(answer, status=201, headers={"Location": f"/purchases/{answer['id']}"})


class Bare(APIView):
    """The work without a key."""

    def post(self, request: Request) -> Response:
        with transaction.atomic():
            answer = insert(request._request)
        return created(answer)


def simple_method_view() -> Any:
    """djangorestframework-idempotency-key: its decorator runs the method inside its own transaction."""
    from rest_framework_idempotency_key.decorators import simple_idempotency_key_method

    class Keyed(APIView):
        @simple_idempotency_key_method
        def post(self, request: Request) -> Response:
            return created(insert(request._request))

    return Keyed.as_view()


def mixin_view() -> Any:
    """drf-idempotencykey: its mixin around the bare view."""
    from drf_idempotencykey.mixins import DrfIdempotencyKeyMixin

    return type("Keyed", (DrfIdempotencyKeyMixin, Bare), {}).as_view()
