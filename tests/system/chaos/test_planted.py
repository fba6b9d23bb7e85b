"""The checker finds every planted bug in a few tries, and nothing without a bug."""

import re
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests import readymade
from tests.conftest import a_folder_of_its_own
from tests.system.chaos import planted, scenarios
from tests.system.chaos.lab import Lab
from tests.system.chaos.planted import Bug
from tests.system.chaos.scenarios import Bench, Scenario

TRIES = 10  # the bound that docs/how-to/run-chaos.md states; the first or the second finds it
REST_SECONDS = 3.0  # of what a bug leaves open nothing is to be hoped for
PATIENT_SECONDS = 60.0  # and without one everything ends, on a slow machine late

# processes are started while clients' threads run, as the real thing does
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

BUGS: list[tuple[Bug, Scenario, str]] = [
    (planted.MARKER_WITHOUT_NX, scenarios.double_clicks, r"key \S+ has \d+ orders"),
    (planted.COMPLETION_WITHOUT_CAS, scenarios.outlived_lease, r"pay \S+ was answered differently"),
    (
        planted.LEASE_IGNORED,
        scenarios.impatient_duplicate,
        r"run \d+ of key \S+ was overtaken after .* within its lease",
    ),
    (
        planted.CALLBACK_WITHOUT_UNIQUE_ROW,
        scenarios.copied_callbacks,
        r"wechat notification \S+ was taken in \d+ times",
    ),
    (
        planted.REFUND_WITHOUT_RESERVATION,
        scenarios.racing_refunds,
        r"refund \S+ was refused with 409 refund_refused",
    ),
    (planted.REAPER_WITHOUT_FILTER, scenarios.late_retries, r"key \S+ has \d+ orders"),
    (planted.STOCK_WITHOUT_CONDITION, scenarios.rush, r"mug: 28 of 10 units are sold"),
]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with a_folder_of_its_own() as folder:
        readymade.lay_out(folder)
        (folder / "planted").write_text("")
        lab = Lab(folder, web=2, durable=False, more={"CHAOS_PLANTED": str(folder / "planted")})
        try:
            lab.start()
            with closing(Bench(lab)) as made:
                yield made
        finally:
            lab.stop()


@pytest.mark.parametrize(("bug", "scenario", "sentence"), BUGS, ids=[bug.name for bug, _, _ in BUGS])
def test_a_planted_bug_is_found(bench: Bench, bug: Bug, scenario: Scenario, sentence: str) -> None:
    found: list[str] = []
    with bench.planted(bug):
        for number in range(1, TRIES + 1):
            with bench.open() as scene:
                scenario(scene)
                found = scene.verdict(rest_seconds=REST_SECONDS)
            if any(re.search(sentence, violation) for violation in found):
                print(f"{bug.name}: found by try {number}", *found, sep="\n  ")
                return
    pytest.fail(f"{bug.name}: not found in {TRIES} tries, but {found}")


def test_without_a_bug_the_same_ways_end_well(bench: Bench) -> None:
    with bench.open() as scene:
        for _, scenario, _ in BUGS:
            scenario(scene)
        assert scene.verdict(rest_seconds=PATIENT_SECONDS) == []
