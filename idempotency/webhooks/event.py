"""Event of a sender, and what may be wrong with one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any


def place_of(function: Any) -> str:
    """Name a function of the project's by module and name."""
    return f"{function.__module__}.{getattr(function, '__qualname__', function)}"


class NotGenuine(Exception):
    """Error of a request that its sender did not sign, or not lately."""


class Unverifiable(Exception):
    """Error of a request that cannot be judged now: there is no secret or no certificate."""


class NotReplayable(Exception):
    """Error of an event that is applied, without a handler, or behind another just now."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Genuine request of a sender.

    Attributes:
        id: the sender's, the same in every copy; empty while the request is verified.
        headers: those that the verifier and `headers=` name, found in any case.
        body: as it arrived.
        received_at: when the first copy arrived.
        attempt: number of this run of the handler, from 1.
    """

    sender: str
    id: str
    headers: Mapping[str, str]
    body: bytes
    received_at: datetime
    attempt: int = 1

    @cached_property
    def json(self) -> Any:
        """Body as JSON; raises ValueError if it is none."""
        return json.loads(self.body)

    def header(self, name: str) -> str:
        """Return a header; empty where it is missing."""
        return self.headers.get(name, "")
