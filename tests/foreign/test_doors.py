"""One table of trials for every door: what happens to a note's one effect, whatever happens to the call."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
import redis

from tests.foreign.doors import DOORS, Door
from tests.foreign.foreign import ForeignProject, Wheels, at_once, run

COPIES = 8
SHOW_PLACES = """
import idempotency, json, payments
from importlib.metadata import version
print(json.dumps([idempotency.__file__, payments.__file__, version("payonce"), version("payonce-payments")]))
"""


@pytest.fixture(scope="module", params=DOORS)
def door(
    request: pytest.FixtureRequest,
    beside: Path,
    migrated: ForeignProject,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Door]:
    """A door that is open, of a project with a database of its own."""
    make, settings = DOORS[request.param]
    project = ForeignProject(beside, tmp_path_factory.mktemp(settings) / "project", settings)
    with project.with_database(like=migrated), closing(make(project)) as door:
        yield door


def test_both_apps_come_from_the_projects_own_wheels(beside: Path, wheels: Wheels) -> None:
    *files, payonce, payments = json.loads(run([str(beside), "-I", "-c", SHOW_PLACES]).stdout)
    assert all(Path(file).is_relative_to(beside.parents[1]) for file in files)
    assert payonce == payments == wheels.payonce.name.split("-")[1]


def test_its_checks_ask_for_nothing_more(door: Door) -> None:
    assert "WARNINGS:" not in door.server.complaints()


def retried(door: Door) -> None:
    key, text = uuid4().hex, uuid4().hex
    first, again = (door.leave(text, key=key) for _ in range(2))
    assert (first.outcome, first.value["text"]) == ("done", text)
    assert (again.outcome, again.value) == ("done", first.value)
    assert (first.replayed, again.replayed) in {(False, True), (None, None)}
    assert door.effects(text) == 1


def copied(door: Door) -> None:
    key, text = uuid4().hex, uuid4().hex
    results = at_once(lambda: door.leave(text, key=key, copies=COPIES), copies=COPIES)
    done = [each for each in results if each.outcome == "done"]
    assert {each.outcome for each in results} <= {"done", "running"}
    last = door.leave(text, key=key)
    assert all(each.value == last.value for each in done)
    assert [each.replayed for each in done].count(False) <= 1
    assert len(done) >= 1
    assert door.effects(text) == 1


def changed(door: Door) -> None:
    key, text, other = uuid4().hex, uuid4().hex, uuid4().hex
    first = door.leave(text, key=key)
    assert door.leave(other, key=key).outcome == "reused"
    assert door.effects(other) == 0
    assert door.leave(text, key=key).value == first.value


def of_two_users(door: Door) -> None:
    key, text = uuid4().hex, uuid4().hex
    first, other = (door.leave(text, key=key, user=user) for user in ("ann", "bob"))
    assert (first.outcome, other.outcome) == ("done", "done")
    assert first.value != other.value
    assert door.effects(text) == 2
    assert [door.leave(text, key=key, user=user).value for user in ("ann", "bob")] == [first.value, other.value]


def killed_after_the_commit(door: Door) -> None:
    key, text = uuid4().hex, uuid4().hex
    dying = door.leave(text, key=key, dying=True)
    again = door.leave(text, key=key)
    assert dying.outcome == "died" or dying.value == again.value  # a queue delivers again by itself
    assert (again.outcome, again.value["text"]) == ("done", text)
    assert again.replayed in {True, None}
    assert door.effects(text) == 1


def flushed(door: Door) -> None:
    key, text = uuid4().hex, uuid4().hex
    first = door.leave(text, key=key)
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as server:
        server.flushdb()
    assert door.leave(text, key=key).value == first.value
    assert door.effects(text) == 1


TRIALS = [retried, copied, changed, of_two_users, killed_after_the_commit, flushed]
EACH_TRIAL = pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.__name__)


@EACH_TRIAL
def test_one_effect_though_the_call_is(trial: Callable[[Door], None], door: Door) -> None:
    trial(door)


@pytest.mark.parametrize("door", ["second alias"], indirect=True)
def test_the_ledger_is_at_the_alias_that_it_is_given(door: Door) -> None:
    door.project.manage("migrate", "--database", "notes", "--check")
    door.project.manage("check", "--database", "notes", "--fail-level", "WARNING")
    door.project.manage("migrate", "--verbosity", "0")  # the project's default, an SQLite
    assert "idempotency_" not in door.project.manage("inspectdb")
