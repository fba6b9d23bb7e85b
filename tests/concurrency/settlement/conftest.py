"""The orders, attempts and letters of tests/integration/settlement serve here too."""

from tests.integration.settlement.conftest import channels, mug, new_order, open_attempt, shopper

__all__ = ["channels", "mug", "new_order", "open_attempt", "shopper"]
