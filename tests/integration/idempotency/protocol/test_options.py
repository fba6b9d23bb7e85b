"""The options of a keyed view: all of them behind every door, and what each one means."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import override_settings

from idempotency import KeyedCall, Mode, drf, ninja, views
from idempotency.errors import Problem
from idempotency.middleware import keyed_form
from idempotency.models import LedgerEntry
from idempotency.protocol.policy import Options
from tests.integration.idempotency.conftest import Effects
from tests.integration.idempotency.protocol.optional import DECORATED, Caller, answered
from tests.integration.idempotency.urls import PLAN
from tests.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True)]
Open = Callable[..., Caller]
HERE = "tests.integration.idempotency"

EACH_DOOR = pytest.mark.parametrize("opened", DECORATED, indirect=True)
# the doors that differ in how they call a handler and show a problem
EACH_WAY = pytest.mark.parametrize(
    "opened", ["function", "async function", "APIView", "Ninja", "async Ninja"], indirect=True
)


@pytest.fixture
def opened(request: pytest.FixtureRequest, user: User) -> Open:
    """Open a door with options; that of functions where a test names none."""
    door = DECORATED[getattr(request, "param", "function")]
    return lambda **options: Caller(door(**options), user)


def the_shop(request: Any) -> str:
    """Name every caller alike."""
    return "the-shop"


def show(request: Any, problem: Problem) -> HttpResponse:
    """Read what a page does, also around an async view."""
    assert User.objects.exists()
    return HttpResponse(f"sorry: {problem.code}", status=problem.status)


def age(seconds: float) -> None:
    """Let every answer be older."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE idempotency_ledgerentry SET finished_at = finished_at - %s * interval '1 second'", [seconds]
        )


def replayed(answer: Any) -> bool:
    return answer.headers.get("Idempotent-Replayed") == "true"


@EACH_DOOR
@pytest.mark.usefixtures("without_redis")
def test_every_door_has_every_option(opened: Open, user: User, effects: Effects) -> None:
    leases: list[float] = []
    replays: list[Any] = []

    def look(call: KeyedCall) -> None:
        entry: Any = LedgerEntry.objects.get()
        leases.append((entry.lease_until - entry.created_at).total_seconds())
        assert not connection.in_atomic_block

    options: dict[str, Any] = {
        "mode": Mode.PHASED,
        "lease": 300,
        "wait": 0,
        "required": True,
        "window": 10,
        "header": "X-Request-Key",
        "principal": the_shop,
        "ignore": ["sent_at"],
        "redact": ["secret"],
        "lifetime": 60,
        "on_problem": show,
        "on_replay": lambda request, answer: replays.append(request.user),
    }
    assert options.keys() == Options.__annotations__.keys()
    PLAN["act"] = look
    caller, bob = opened(**options), User.objects.create_user("bob")

    def post(item: int, sent_at: int, **given: Any) -> Any:
        return caller.post({"item": item, "sent_at": sent_at}, **given)

    first, again = post(1, 1, **{"X-Request-Key": "k1"}), post(1, 2, user=bob, **{"X-Request-Key": "k1"})
    assert [replayed(answer) for answer in (first, again)] == [False, True]
    assert [json.loads(answer.content)["secret"] for answer in (first, again)] == ["s3cret", "[redacted]"]
    assert (leases, replays) == ([pytest.approx(300, abs=5)], [bob])
    PLAN.clear()
    assert post(2, 1, **{"X-Request-Key": "k1"}).content == b"sorry: idempotency_key_reused"
    assert [replayed(post(3, sent_at)) for sent_at in (1, 2)] == [False, True]
    age(61)
    assert post(1, 1, **{"X-Request-Key": "k1"}).content == b"sorry: idempotency_result_expired"
    assert effects() == 2


@pytest.mark.parametrize("keyed", [views.idempotent, keyed_form], ids=["decorated", "KEYED"])
def test_settings_are_the_options_of_every_view(keyed: Any, user: User, effects: Effects, settings: Any) -> None:
    @keyed
    def view(request: HttpRequest, call: KeyedCall) -> HttpResponse:
        return answered(request, call)

    settings.IDEMPOTENCY = {
        "KEYED": "unsafe",
        "REDIS": None,
        "REQUIRED": False,
        "HEADER": "X-Request-Key",
        "BODY_SECONDS": 60,
        "IGNORE": ["sent_at"],
        "REDACT": ["secret"],
        "PRINCIPAL": f"{__name__}.the_shop",
        "ON_REPLAY": f"{HERE}.urls.note_replay",
    }
    caller, key = Caller(view, user), {"X-Request-Key": "k1"}
    assert [replayed(caller.post()) for _ in range(2)] == [False, False]
    first = caller.post({"sent_at": 1}, **key)
    again = caller.post({"sent_at": 2}, user=User.objects.create_user("bob"), **key)
    assert [answer.headers.get("X-Replays") for answer in (first, again)] == [None, "of all"]
    assert [json.loads(answer.content)["secret"] for answer in (first, again)] == ["s3cret", "[redacted]"]
    age(61)
    assert (caller.post({"sent_at": 1}, **key).status_code, effects()) == (410, 3)


def test_a_key_may_be_optional(opened: Open, effects: Effects) -> None:
    caller = opened(required=False)
    bare = [caller.post() for _ in range(2)]
    assert [answer.status_code for answer in bare] == [201, 201]
    digests = {json.loads(answer.content)["digest"] for answer in bare}  # by which a handler numbers its own calls
    assert ({len(digest) for digest in digests}, len(digests)) == ({64}, 2)
    assert [replayed(caller.post(key="k1")) for _ in range(2)] == [False, True]
    assert (effects(), LedgerEntry.objects.count()) == (3, 1)
    PLAN["refuse"] = True  # an unkeyed call has its transaction all the same
    assert (caller.post().status_code, effects()) == (409, 3)


def test_a_key_may_be_demanded_by_the_view_or_its_function(opened: Open, effects: Effects, settings: Any) -> None:
    settings.IDEMPOTENCY = {"REQUIRED": False}
    refused = opened(required=True, header="X-Request-Key").post(key="k1")
    assert (refused.status_code, "X-Request-Key" in refused.content.decode()) == (400, True)
    caller = opened(required=lambda request: "X-Must" in request.headers)
    assert [caller.post().status_code, caller.post(**{"X-Must": "yes"}).status_code] == [201, 400]
    assert (effects(), LedgerEntry.objects.count()) == (1, 0)


def test_one_answer_may_have_a_lifetime_of_its_own(opened: Open, effects: Effects) -> None:
    PLAN["act"] = lambda call: call.set_lifetime(0)
    caller = opened()
    assert [caller.post(key="k1").status_code for _ in range(2)] == [201, 410]
    PLAN.clear()
    assert [replayed(caller.post(key="k2")) for _ in range(2)] == [False, True]
    assert [opened(lifetime=0).post(key="k3").status_code for _ in range(2)] == [201, 410]
    assert effects() == 3


def test_a_refusal_that_is_not_stored_leaves_the_key_free(opened: Open, effects: Effects) -> None:
    PLAN.update(act=lambda call: call.do_not_store(), status=409)
    caller = opened()
    assert caller.post(key="k1").status_code == 409
    assert (effects(), LedgerEntry.objects.count()) == (0, 0)
    PLAN.pop("status")
    for key in ("k1", None):  # what was done is not undone under an answer that says it was
        with pytest.raises(
            RuntimeError, match=r"answered 201, and do_not_store\(\) would undo .*set_lifetime\(0\)"
        ):
            opened(required=False).post(key=key)
    assert (effects(), LedgerEntry.objects.count()) == (0, 0)
    PLAN.clear()
    assert (caller.post(key="k1").status_code, effects()) == (201, 1)


def test_an_answer_for_which_nothing_was_written_need_not_be_stored(user: User) -> None:
    @views.idempotent
    def search(request: HttpRequest, call: KeyedCall) -> HttpResponse:
        call.do_not_store()
        return HttpResponse(str(User.objects.count()))

    caller = Caller(search, user)
    assert [replayed(caller.post(key="k1")) for _ in range(2)] == [False, False]


def test_a_function_may_choose_what_counts(opened: Open) -> None:
    caller = opened(ignore=lambda body: body["items"])
    caller.post({"items": [1], "sent_at": 1}, key="k1")
    assert replayed(caller.post({"sent_at": 2, "items": [1]}, key="k1"))
    assert caller.post({"items": [2], "sent_at": 1}, key="k1").status_code == 422


@EACH_WAY
def test_a_refusal_is_stored_as_the_view_shows_it_and_a_function_that_shows_none_is_named(
    opened: Open, effects: Effects
) -> None:
    def forgetful(request: Any, problem: Problem) -> Any: ...

    PLAN["refuse"] = True
    caller = opened(on_problem=show)
    refused = [caller.post(key="k1") for _ in range(2)]
    assert [(answer.content, replayed(answer)) for answer in refused] == [
        (b"sorry: refused", False),
        (b"sorry: refused", True),
    ]
    for key in (None, "k2"):
        with pytest.raises(TypeError, match=r"on_problem=.*forgetful.* returned None. Return an HttpResponse"):
            opened(on_problem=forgetful).post(key=key)
    PLAN["refuse"] = False
    changed = opened(on_replay=lambda request, answer: {"again": True})
    assert (changed.post(key="k3").status_code, effects()) == (201, 1)
    with pytest.raises(
        TypeError, match=r"on_replay returned \{'again': True\}. Return an HttpResponse there, or None"
    ):
        changed.post(key="k3")


@pytest.mark.parametrize("redis", ["default", None])
def test_an_unkeyed_repeat_within_the_window_is_the_same_call(
    opened: Open, effects: Effects, redis: str | None, settings: Any
) -> None:
    settings.IDEMPOTENCY = {"REDIS": redis}
    caller = opened(window=10)
    first, again = caller.post({"a": 1}), caller.post({"a": 1})
    assert (first.status_code, again.content, replayed(again)) == (201, first.content, True)
    assert not replayed(caller.post({"a": 2}))
    assert not replayed(caller.post({"a": 1}, user=User.objects.create_user("bob")))
    assert not replayed(caller.post({"a": 1}, key="k1"))  # a key counts before the window
    assert effects() == 4
    age(11)
    answers = at_once(*[lambda: caller.post({"a": 1})] * 8)
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert [replayed(answer) for answer in answers if answer.status_code == 201].count(False) == 1
    assert effects() == 5


@pytest.mark.usefixtures("without_redis")
def test_a_window_begins_with_the_first_call_after_the_last_and_has_no_edges(
    opened: Open, effects: Effects
) -> None:
    caller = opened(window=1000)
    caller.post()
    for generation in range(1, 3):
        for _ in range(3):  # up to 900 s after the first, wherever the clock stands
            age(300)
            assert replayed(caller.post())
        age(200)
        assert not replayed(caller.post())
        assert effects() == generation + 1
    assert {len(entry.key) for entry in LedgerEntry.objects.all()} == {1 + 64 + 1 + 10}


def test_a_window_needs_a_caller_or_an_optional_key(opened: Open, user: User, effects: Effects) -> None:
    assert (opened(window=10).post(user=AnonymousUser()).status_code, effects()) == (400, 0)
    caller = opened(window=10, required=False)
    anonymous = [caller.post(user=AnonymousUser()) for _ in range(2)]
    assert [(answer.status_code, replayed(answer)) for answer in anonymous] == [(201, False)] * 2
    assert [replayed(caller.post(user=user)) for _ in range(2)] == [False, True]
    assert effects() == 3


@pytest.mark.parametrize("mode", Mode)
def test_switched_off_every_call_runs_and_says_so(
    opened: Open, effects: Effects, mode: Mode, settings: Any
) -> None:
    settings.IDEMPOTENCY = {"ENABLED": False}
    caller = opened(mode=mode)
    answers = [caller.post(key="k1"), caller.post(key="k1"), caller.post()]
    assert {(answer.status_code, answer["Idempotency"]) for answer in answers} == {(201, "disabled")}
    assert (effects(), LedgerEntry.objects.count()) == (3, 0)


@pytest.mark.parametrize("opened", ["APIView"], indirect=True)
def test_a_refusal_is_stored_also_under_rest_frameworks_own_handler(opened: Open, effects: Effects) -> None:
    """It knows no Problem and raises it again."""
    PLAN["refuse"] = True
    with override_settings(REST_FRAMEWORK={"EXCEPTION_HANDLER": "rest_framework.views.exception_handler"}):
        caller = opened()
        refused = [caller.post(key="k1") for _ in range(2)]
    assert [(answer.status_code, replayed(answer)) for answer in refused] == [(409, False), (409, True)]
    assert effects() == 0


async def _awaited(*_: Any) -> Any: ...


def test_an_option_that_cannot_be_honoured_is_named_where_it_is_written() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"lifetme": 3}, r"no option 'lifetme'; did you mean 'lifetime'\?"),
        ({"wait_seconds": 3}, r"did you mean 'wait'\?"),
        ({"zzz": 3}, "known are header, ignore"),
        ({"mode": "atomic"}, "mode='atomic'.*Mode or Phases"),
        ({"required": "yes"}, "required='yes'"),
        ({"wait": -1}, "wait=-1.*0 or more"),
        ({"lease": 5}, "lease=5.*only a phased handler"),
        ({"lease": 10**10, "mode": Mode.PHASED}, "lease=.* up to 1,000,000,000"),
        ({"lifetime": "1 h"}, "lifetime='1 h'"),
        ({"header": "cookie"}, "header='cookie'.*no other meaning"),
        ({"principal": "project.principal"}, "principal='project.principal'.*function"),
        ({"ignore": "sent_at"}, "ignore='sent_at'.*names"),
        ({"redact": "card"}, "redact='card'.*list of names"),
        ({"window": 0}, "window=0.*more than 0"),
        ({"on_problem": 1}, "on_problem=1"),
        *(({each: _awaited}, "without async") for each in ("required", "principal", "ignore", "on_problem")),
        ({"on_replay": _awaited}, "without async"),
    ]
    for door in (views.idempotent, drf.idempotent, ninja.idempotent):
        for options, sentence in wrong:
            with pytest.raises(TypeError, match=sentence):
                door(**options)
