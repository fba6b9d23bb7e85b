"""Door for Django REST framework: keyed handlers, problem+json for every error, one-time tokens.

In: a request that REST framework has authenticated. Out: its answer, or the stored one. Never: another framework.
"""

try:
    import rest_framework  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError("idempotency.drf needs Django REST framework: pip install 'payonce[drf]'") from error

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
