"""Resource of one-time tokens."""

from collections.abc import Callable
from typing import Any

from rest_framework import serializers, status
from rest_framework.exceptions import NotAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from idempotency.errors import AnonymousRefused
from idempotency.protocol import tokens
from idempotency.request.principal import caller_of
from idempotency.views import not_keyed


class TokenSerializer(serializers.Serializer[tokens.Token]):
    """One-time token, as the API shows it."""

    token = serializers.CharField()
    expires_at = serializers.DateTimeField()


def _documented(method: Callable[..., Any]) -> Callable[..., Any]:
    try:
        from drf_spectacular.utils import extend_schema  # noqa: PLC0415
    except ImportError:
        return method
    described = extend_schema(request=None, responses={201: TokenSerializer}, summary="Issue a one-time token")
    return described(method)


@not_keyed
class TokenList(APIView):
    """Resource of one-time tokens: `POST` issues one to the caller."""

    @_documented
    def post(self, request: Request) -> Response:
        try:
            token = tokens.issue(caller_of(request))
        except AnonymousRefused:
            raise NotAuthenticated from None  # as the view answers: 401 with its `WWW-Authenticate`, else 403
        return Response(TokenSerializer(token).data, status=status.HTTP_201_CREATED)
