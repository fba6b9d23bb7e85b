"""Call about a key: what became of each request that its owner sent under it."""

from django.utils.translation import gettext_noop as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from idempotency.errors import Problem
from idempotency.maintenance import request_log
from idempotency.request.principal import principal_of
from shop.api import schema
from shop.api.serializers import KeyResponse, represent_key

KEY = OpenApiParameter(
    "key",
    OpenApiTypes.STR,
    OpenApiParameter.PATH,
    description="As it was sent in `Idempotency-Key`, percent-encoded.",
    examples=[OpenApiExample("a random UUID", value=schema.EXAMPLE_KEY)],
)


class KeyDetail(APIView):
    @extend_schema(
        operation_id="idempotency_keys_read",
        summary="Read what became of a key",
        description="Only of the caller's own keys, and once a call with it was answered. A key stands here once "
        "for each call that it was used for. The log may lack calls: it is lost with Redis, and holds the newest.",
        parameters=[KEY],
        responses=schema.responses({200: KeyResponse}, {404: "idempotency_key_not_found"}),
    )
    def get(self, request: Request, key: str) -> Response:
        entries = request_log.entries_of(principal=principal_of(request), key=key)
        if not entries:
            raise Problem(404, "idempotency_key_not_found", _("You have no answer under this key."))
        logs = [request_log.log_of(scope=entry.scope, key=key) for entry in entries]
        return Response(represent_key(key, zip(entries, logs, strict=True)))
