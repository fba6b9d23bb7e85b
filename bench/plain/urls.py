"""/bare and /up everywhere; beside them what the variant's package needs: /keyed, and /phased for ours."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from bench.plain import views


def _keyed() -> dict[str, Any]:
    setup = settings.SETUP
    if setup.startswith("ours"):
        from bench.plain import our_views

        return {"keyed": our_views.keyed, "phased": our_views.phased}
    if setup == "bare-drf":
        from bench.plain import drf_views

        return {"keyed": drf_views.Bare.as_view()}
    if setup in {"djangorestframework-idempotency-key", "drf-idempotencykey", "drf-idempotencykey-atomic"}:
        from bench.plain import drf_views

        is_mixin = setup.startswith("drf-idempotencykey")
        return {"keyed": drf_views.mixin_view() if is_mixin else drf_views.simple_method_view()}
    from bench.plain import peer_views

    makers: dict[str, Callable[[], Any]] = {
        "django-idempotency-key-thread": peer_views.marked_view,
        "django-idempotency-key-redis": peer_views.marked_view,
        "drf-idempotency-database-atomic": peer_views.decorated_view,
        "aws-lambda-powertools": peer_views.powertools_view,
    }
    # the rest works by middleware alone
    return {"keyed": makers[setup]() if setup in makers else views.bare}


urlpatterns = [
    path("up", views.up),
    path("bare", csrf_exempt(views.bare)),
    *(path(name, csrf_exempt(view)) for name, view in _keyed().items()),
]
