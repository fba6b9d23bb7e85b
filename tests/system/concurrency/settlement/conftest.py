"""The orders, attempts and letters of tests/integration/payments serve here too."""

from tests.integration.payments.conftest import channels, mug, new_order, open_attempt, shopper

__all__ = ["channels", "mug", "new_order", "open_attempt", "shopper"]
