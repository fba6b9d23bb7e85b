"""The shop's fixtures again, for many threads at the same instant."""

from tests.integration.shop.conftest import channels, demo, mug, other, sneaker

__all__ = ["channels", "demo", "mug", "other", "sneaker"]
