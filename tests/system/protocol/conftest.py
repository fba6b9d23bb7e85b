"""The stops of every actor: before each call to the marker and to the ledger."""

import logging
from collections.abc import Iterator
from functools import wraps
from typing import Any

import pytest

from idempotency import ledger
from idempotency.conf import config
from idempotency.redis import marker
from tests.system.protocol.explorer import dismiss_players, stopping_before

MARKER = ["claim", "look", "finish", "release"]
LEDGER = ["hold", "record", "find", "claim_phased", "take_over", "complete_phased", "suspend", "drop_lease"]


@pytest.fixture(autouse=True, scope="package")
def _players() -> Iterator[None]:
    yield
    dismiss_players()


@pytest.fixture(autouse=True)
def _stops(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    logging.getLogger("idempotency").setLevel(logging.WARNING)
    monkeypatch.setattr(marker, "finish", _answered(marker.finish))
    for module, names, touches in ((marker, MARKER, _marker), (ledger, LEDGER, lambda: "ledger")):
        for name in names:
            monkeypatch.setattr(module, name, stopping_before(getattr(module, name), touches=touches))
    yield
    logging.getLogger("idempotency").setLevel(logging.NOTSET)


def _marker() -> str:
    """Without Redis nobody sees a marker."""
    return "marker" if config().redis_alias else ""


def _answered(finish: Any) -> Any:
    """A command without a reply is done sometime: after the next stop, or after the flush with which the next order begins."""

    @wraps(finish)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        finish(*args, **{**kwargs, "wait": True})

    return wrapper
