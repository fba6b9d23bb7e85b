"""The shop's fixtures again, for many threads at the same instant."""

from tests.integration.shop.conftest import (  # noqa: F401
    caller,
    channels,
    demo,
    mug,
    other,
    poster,
    shopper,
    sneaker,
    stranger,
)
