"""The addresses of `hooks`, and no plan left over."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.idempotency.webhooks.hooks import PLAN


@pytest.fixture(autouse=True)
def _hooks(settings: Any, transactional_db: None) -> Iterator[None]:
    settings.ROOT_URLCONF = "tests.integration.idempotency.webhooks.hooks"
    PLAN.clear()
    yield
    PLAN.clear()
