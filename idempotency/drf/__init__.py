"""Door for Django REST framework: keyed handlers, problem+json, one-time tokens.

In: a request that REST framework has authenticated. Out: its answer, or the stored one. Never: another framework.
"""

from idempotency.extras import needed

with needed("drf", by="idempotency.drf"):
    import rest_framework  # noqa: F401

from idempotency.drf.handlers import IdempotentMixin, function_of, idempotent, keyed_view
from idempotency.drf.problems import exception_handler
from idempotency.drf.tokens import TokenList, TokenSerializer

__all__ = [
    "IdempotentMixin",
    "TokenList",
    "TokenSerializer",
    "exception_handler",
    "function_of",
    "idempotent",
    "keyed_view",
]
