"""The shop's settings in the fault lab: production's at ten times the pace.

Environment of the lab's own: `CHAOS_CLOCK_SECONDS`, by how much this process's clock is wrong; `CHAOS_PLANTED`, the
file that names the bug (`tests.system.chaos.planted`). Neither means anything outside `tests/system/chaos`.
"""

import os

from tests.system.chaos import pace

pace.set_clock(ahead_seconds=float(os.environ.get("CHAOS_CLOCK_SECONDS", "0")))

from shop.settings import *  # noqa: E402, F403
from shop.settings import IDEMPOTENCY as PRODUCTION  # noqa: E402
from shop.settings import INSTALLED_APPS  # noqa: E402

IDEMPOTENCY = {
    **PRODUCTION,
    "LEASE_SECONDS": pace.LEASE_SECONDS,
    "MARKER_SECONDS": 1.0,
    "BREAKER_SECONDS": 0.5,
}
ORDER_TTL_SECONDS = 30

INSTALLED_APPS = [*INSTALLED_APPS, "tests.system.chaos.pace.Pace"]
if os.environ.get("CHAOS_PLANTED"):
    INSTALLED_APPS += ["tests.system.chaos.planted.Planted"]
