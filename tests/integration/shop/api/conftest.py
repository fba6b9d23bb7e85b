"""A Redis that can be taken away."""

from tests.integration.payments.limits.conftest import away

__all__ = ["away"]
