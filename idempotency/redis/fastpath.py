"""Redis, as long as it answers: every use of it in this package goes through `attempt`.

Nothing here decides anything. A command is answered within the client's time-outs; after a failure the breaker
keeps this process away from Redis for `BREAKER_SECONDS`, and the caller does without.
"""

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from django.utils.module_loading import import_string
from django_redis import get_redis_connection
from redis.exceptions import RedisClusterException, RedisError

from idempotency.conf import config
from idempotency.observability import metrics
from idempotency.redis.breaker import Breaker

log = logging.getLogger(__name__)

breaker = Breaker()

# what a client raises whose servers do not serve; of a Cluster's own errors some are no RedisError
FAILURES = (RedisError, RedisClusterException, OSError)

T = TypeVar("T")


def client() -> Any:
    """The redis-py client that the settings name; raises whatever making it raises."""
    settings = config()
    if settings.redis_client is not None:
        return _client_of(settings.redis_client)
    return get_redis_connection(settings.redis_alias)


def may_ask() -> bool:
    """Whether Redis is to be asked at all: it is switched on, and the breaker does not keep this process away."""
    settings = config()
    return settings.uses_redis and breaker.allows(open_seconds=settings.breaker_seconds)


def attempt(command: Callable[[Any], T]) -> T | None:
    """Run `command` on a client, within its time-outs; None when Redis is switched off, away or talks nonsense."""
    if not may_ask():
        return None
    probing = not breaker.is_closed
    try:
        result = command(client())
    except FAILURES as error:
        failed(error)
        return None
    except (ValueError, KeyError, TypeError):
        log.warning("A value in Redis is not ours to read; working without it.")
        return None
    if probing:  # else it may only have been told, while another thread found that nobody answers
        breaker.succeeded()
    return result


def failed(error: Exception) -> None:
    """Open the breaker: Redis just failed."""
    seconds = config().breaker_seconds
    breaker.failed(open_seconds=seconds)
    metrics.redis_failures.inc()
    log.warning("Redis is unavailable (%s); doing without it for %g s.", type(error).__name__, seconds)


def ping() -> bool:
    """Whether Redis answers."""
    return attempt(lambda redis: bool(redis.ping())) is True


@lru_cache(maxsize=4)
def _client_of(path: str) -> Any:
    """Made once a process; redis-py's pools see a fork by themselves."""
    return import_string(path)()
