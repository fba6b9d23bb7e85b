"""The callers of tests/integration/idempotency serve here too."""

from tests.integration.idempotency.conftest import _plan, caller, effects, user

__all__ = ["_plan", "caller", "effects", "user"]
