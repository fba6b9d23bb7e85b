"""A Redis that can be taken away."""

from tests.integration.payments.channels.conftest import away

__all__ = ["away"]
