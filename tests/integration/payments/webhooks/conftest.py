"""Each test builds its channels anew, from the same keys."""

from collections.abc import Iterator
from functools import cache

import pytest

from payments.providers import rsa


@pytest.fixture(autouse=True, scope="package")
def _keys_are_loaded_once() -> Iterator[None]:
    """To load one takes 45 ms, as long as most of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rsa, "load_private_key", cache(rsa.load_private_key))
        yield
