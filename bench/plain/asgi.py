"""What uvicorn's workers serve: the same project, under asgi-idempotency-header where BENCH_SETUP asks for it."""

from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application

application: Any = get_asgi_application()

if settings.SETUP == "asgi-idempotency-header":
    from idempotency_header_middleware import IdempotencyHeaderMiddleware
    from idempotency_header_middleware.backends import RedisBackend
    from redis.asyncio import Redis

    backend = RedisBackend(redis=Redis.from_url(settings.REDIS_URL))
    application = IdempotencyHeaderMiddleware(application, backend=backend)
