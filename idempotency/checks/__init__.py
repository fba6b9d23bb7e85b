"""System checks: each names a mistake in the project's settings, views or ledger and what to write instead.

Registered when the app is ready.
"""

from idempotency.checks.callers import check_anonymous_callers, check_callers
from idempotency.checks.history import check_history
from idempotency.checks.ledger import check_constraint, check_reaping, check_server_log
from idempotency.checks.methods import check_keyed_methods
from idempotency.checks.prefixes import check_prefixes
from idempotency.checks.settings import GZIP, MIDDLEWARE, check_settings, check_tenants
from idempotency.checks.start import refuse_mistakes, require_django_redis
from idempotency.checks.views import check_atomic_requests, check_keyed_views, check_middleware
from idempotency.checks.webhooks import check_webhooks

__all__ = [
    "GZIP",
    "MIDDLEWARE",
    "check_anonymous_callers",
    "check_atomic_requests",
    "check_callers",
    "check_constraint",
    "check_history",
    "check_keyed_methods",
    "check_keyed_views",
    "check_middleware",
    "check_prefixes",
    "check_reaping",
    "check_server_log",
    "check_settings",
    "check_tenants",
    "check_webhooks",
    "refuse_mistakes",
    "require_django_redis",
]
