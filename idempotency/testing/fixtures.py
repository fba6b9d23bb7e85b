"""pytest plugin, which ``pytest_plugins`` in the `conftest.py` at the root names."""

from collections.abc import Iterator

import pytest

from idempotency import testing


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    """Start with nothing remembered, whether the test uses the database or not."""
    from idempotency.testing.clients import nothing_remembered  # noqa: PLC0415  needs Django's set-up

    with nothing_remembered():
        yield


@pytest.fixture
def keyed_client() -> "testing.KeyedClient":
    """Client whose unsafe requests carry a fresh key each."""
    return testing.KeyedClient()
