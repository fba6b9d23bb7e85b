"""The bare view under peers that need more than middleware, as their READMEs show."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from bench.plain.views import Orders, created, place


def marked_view() -> Any:
    """django-idempotency-key: the decorator marks, the middleware acts."""
    from idempotency_key.decorators import idempotency_key

    return idempotency_key(Orders.as_view())


def decorated_view() -> Any:
    """drf-idempotency: its decorator, here inside the transaction that ATOMIC_REQUESTS opens.

    On a method it would render the answer before DRF has chosen a renderer, so it goes around the whole view. Its
    errors are DRF's exceptions; the middleware's own function makes answers of them.
    """
    from drf_idempotency import idempotent
    from drf_idempotency.core import build_error_response
    from drf_idempotency.exceptions import IdempotencyError

    keyed = idempotent()(Orders.as_view())

    def view(request: HttpRequest) -> HttpResponse:
        try:
            return keyed(request)
        except IdempotencyError as error:
            return build_error_response(error)

    return view


def powertools_view() -> Any:
    """aws-lambda-powertools outside Lambda: `idempotent_function` over its Redis layer.

    Its documentation asks for the context of the function, which has the time that a run may take; without it a
    crash blocks the key until the record expires. Its validation of the payload is off: with Redis, version 3.37
    loses the stored hash when it stores the answer, and then refuses every replay.
    """
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
    from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyAlreadyInProgressError
    from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer
    from redis import Redis

    class Context:
        @staticmethod
        def get_remaining_time_in_millis() -> int:
            return settings.HELD_SECONDS * 1000

    layer = CachePersistenceLayer(client=Redis.from_url(settings.REDIS_URL, decode_responses=True))
    config = IdempotencyConfig(
        event_key_jmespath="key",
        raise_on_no_idempotency_key=True,
        expires_after_seconds=86_400,
    )
    config.register_lambda_context(Context())  # type: ignore[arg-type]

    @idempotent_function(data_keyword_argument="data", config=config, persistence_store=layer)
    def purchase(*, data: dict[str, Any], request: Request) -> dict[str, Any]:
        return place(request)

    class KeyedOrders(Orders):
        def post(self, request: Request) -> Response:
            data = {"key": request.headers["Idempotency-Key"]}
            try:
                return created(purchase(data=data, request=request))
            except IdempotencyAlreadyInProgressError as error:
                return Response({"detail": str(error)}, status=409)

    return KeyedOrders.as_view()
