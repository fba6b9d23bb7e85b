"""One table of trials for every door: what happens to a note's one effect, whatever happens to the call."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
import redis

from tests.foreign.doors import DOORS, Door
from tests.foreign.foreign import ForeignProject, Wheels, at_once, install_beside

pytestmark = pytest.mark.timeout(300)  # the first test builds and installs

COPIES = 8
SHOW_PLACES = """
import idempotency, json, payments
from importlib.metadata import version
print(json.dumps([idempotency.__file__, payments.__file__, version("payonce"), version("payonce-payments")]))
"""


@pytest.fixture(scope="module")
def project(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignProject]:
    """The foreign project, migrated, in an environment with both wheels and what the tests have beside them."""
    folder = tmp_path_factory.mktemp("doors")
    python = install_beside(wheels, folder / "venv")
    with ForeignProject(python, folder / "project", "with_redis").with_database() as project:
        project.manage("migrate", "--verbosity", "0")
        yield project


@pytest.fixture(scope="module", params=DOORS)
def door(request: pytest.FixtureRequest, project: ForeignProject) -> Iterator[Door]:
    """A door that is open."""
    make, settings = DOORS[request.param]
    with closing(make(project, settings)) as door:
        yield door


def test_both_apps_come_from_their_wheels(project: ForeignProject, wheels: Wheels) -> None:
    *files, payonce, payments = project.evaluate(SHOW_PLACES)
    assert all(Path(file).is_relative_to(project.python.parents[1]) for file in files)
    assert payonce == payments == wheels.payonce.name.split("-")[1]


def retried(door: Door, project: ForeignProject) -> None:
    key, text = uuid4().hex, uuid4().hex
    first, again = (door.leave(text, key=key) for _ in range(2))
    assert (first.outcome, first.value["text"]) == ("done", text)
    assert (again.outcome, again.value) == ("done", first.value)
    assert (first.replayed, again.replayed) in {(False, True), (None, None)}
    assert project.effects(text) == 1


def copied(door: Door, project: ForeignProject) -> None:
    key, text = uuid4().hex, uuid4().hex
    results = at_once(lambda: door.leave(text, key=key, copies=COPIES), copies=COPIES)
    done = [each for each in results if each.outcome == "done"]
    assert {each.outcome for each in results} <= {"done", "running"}
    last = door.leave(text, key=key)
    assert all(each.value == last.value for each in done)
    assert [each.replayed for each in done].count(False) <= 1
    assert len(done) >= 1
    assert project.effects(text) == 1


def changed(door: Door, project: ForeignProject) -> None:
    key, text, other = uuid4().hex, uuid4().hex, uuid4().hex
    first = door.leave(text, key=key)
    assert door.leave(other, key=key).outcome == "reused"
    assert project.effects(other) == 0
    assert door.leave(text, key=key).value == first.value


def of_two_users(door: Door, project: ForeignProject) -> None:
    key, text = uuid4().hex, uuid4().hex
    first, other = (door.leave(text, key=key, user=user) for user in ("ann", "bob"))
    assert (first.outcome, other.outcome) == ("done", "done")
    assert first.value != other.value
    assert project.effects(text) == 2
    assert [door.leave(text, key=key, user=user).value for user in ("ann", "bob")] == [first.value, other.value]


def killed_after_the_commit(door: Door, project: ForeignProject) -> None:
    key, text = uuid4().hex, uuid4().hex
    dying = door.leave(text, key=key, dying=True)
    again = door.leave(text, key=key)
    assert dying.outcome == "died" or dying.value == again.value  # a queue delivers again by itself
    assert (again.outcome, again.value["text"]) == ("done", text)
    assert again.replayed in {True, None}
    assert project.effects(text) == 1


def flushed(door: Door, project: ForeignProject) -> None:
    key, text = uuid4().hex, uuid4().hex
    first = door.leave(text, key=key)
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as server:
        server.flushdb()
    assert door.leave(text, key=key).value == first.value
    assert project.effects(text) == 1


TRIALS = [retried, copied, changed, of_two_users, killed_after_the_commit, flushed]


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.__name__)
def test_one_effect_though_the_call_is(
    trial: Callable[[Door, ForeignProject], None], door: Door, project: ForeignProject
) -> None:
    trial(door, project)
