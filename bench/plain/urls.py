"""/bare everywhere; beside it the variant's view: /keyed, and /phased for ours."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.urls import path

from bench.plain import views


def _keyed() -> dict[str, Any]:
    setup = settings.SETUP
    if setup.startswith("ours"):
        from bench.plain import our_views

        return {"keyed": our_views.KeyedOrders.as_view(), "phased": our_views.PhasedOrders.as_view()}
    from bench.plain import peer_views

    makers: dict[str, Callable[[], Any]] = {
        "thread-lock": peer_views.marked_view,
        "redis-lock": peer_views.marked_view,
        "drf-idempotency-atomic": peer_views.decorated_view,
        "aws-lambda-powertools": peer_views.powertools_view,
    }
    # the rest works by middleware alone
    return {"keyed": makers[setup]() if setup in makers else views.Orders.as_view()}


urlpatterns = [
    path("bare", views.Orders.as_view()),
    path("idle", views.IdleOrders.as_view()),
    *(path(name, view) for name, view in _keyed().items()),
]
