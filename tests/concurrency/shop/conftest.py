"""The shop's fixtures again, and threads that all start at one instant."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import connections

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

DEADLINE_SECONDS = 60


@pytest.fixture
def at_once() -> Callable[[Sequence[Callable[[], Any]]], list[Any]]:
    """Run every callable in a thread and on a connection of its own, released by one barrier; results in order.

    What a callable raises is its result.
    """

    def run(works: Sequence[Callable[[], Any]]) -> list[Any]:
        barrier = Barrier(len(works))

        def one(work: Callable[[], Any]) -> Any:
            try:
                barrier.wait(DEADLINE_SECONDS)
                return work()
            except Exception as error:
                return error
            finally:
                connections.close_all()

        with ThreadPoolExecutor(len(works)) as pool:
            return [future.result(DEADLINE_SECONDS) for future in [pool.submit(one, work) for work in works]]

    return run
