"""Every option behind every door that has it, by one table (`optional.OPTIONS`)."""

import json
import os
import threading
from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import override_settings

from idempotency import KeyedCall, Mode, drf, ninja, once, views
from idempotency.checks.settings import check_settings
from idempotency.errors import Problem
from idempotency.models import LedgerEntry
from idempotency.protocol.policy import Options
from tests.integration.idempotency.protocol.optional import (
    DECORATED,
    OPTIONS,
    Caller,
    caller_at,
    doors_with,
    function,
    the_shop,
)
from tests.integration.idempotency.urls import PLAN
from tests.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True)]

Effects = Callable[[], int]
Open = Callable[..., Caller]


@pytest.fixture(params=DECORATED)
def opened(request: pytest.FixtureRequest, user: User, settings: Any) -> Open:
    return lambda **options: caller_at(request.param, user, options, settings)


def at_every_door_with(option: str) -> Any:
    """Run a test at each door that has the option."""
    return pytest.mark.parametrize("opened", doors_with(option), indirect=True)


def age(seconds: float) -> None:
    """Let every answer be older."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE idempotency_ledgerentry SET finished_at = finished_at - %s * interval '1 second'", [seconds]
        )


@pytest.fixture
def without_redis(settings: Any) -> None:
    settings.IDEMPOTENCY = {"REDIS": None}


def replayed(answer: Any) -> bool:
    return answer.headers.get("Idempotent-Replayed") == "true"


def test_the_table_has_every_option() -> None:
    assert OPTIONS.keys() == Options.__annotations__.keys()
    arguments = {written.once for written in OPTIONS.values() if written.once}
    assert arguments == signature(once).parameters.keys() - {"name", "key", "payload", "tenant"}


@pytest.mark.parametrize("option", [name for name, written in OPTIONS.items() if not written.once])
def test_what_once_has_not_is_refused(option: str) -> None:
    with pytest.raises(TypeError, match=option):
        once("things", key="k1", **{option: None})


@pytest.mark.parametrize("option", [name for name, written in OPTIONS.items() if not written.setting])
def test_what_is_no_setting_is_refused(option: str, settings: Any) -> None:
    settings.IDEMPOTENCY = {option.upper(): None}
    assert [message.id for message in check_settings(None)] == ["idempotency.E001"]


@at_every_door_with("required")
def test_a_key_may_be_optional(opened: Open, effects: Effects) -> None:
    caller = opened(required=False)
    bare = [caller.post() for _ in range(2)]
    assert [(answer.status_code, json.loads(answer.content)["digest"]) for answer in bare] == [(201, "")] * 2
    assert [replayed(caller.post(key="k1")) for _ in range(2)] == [False, True]
    assert (effects(), LedgerEntry.objects.count()) == (3, 1)


@at_every_door_with("required")
def test_a_key_may_be_demanded(opened: Open, effects: Effects, settings: Any) -> None:
    settings.IDEMPOTENCY = {"REQUIRED": False}
    assert (opened(required=True).post().status_code, effects()) == (400, 0)


def test_a_function_may_demand_the_key(opened: Open, effects: Effects) -> None:
    caller = opened(required=lambda request: request.META.get("HTTP_X_MUST") == "yes")
    assert [caller.post().status_code, caller.post(**{"X-Must": "yes"}).status_code] == [201, 400]
    assert (effects(), LedgerEntry.objects.count()) == (1, 0)


def test_an_unkeyed_call_has_its_transaction_all_the_same(opened: Open, effects: Effects) -> None:
    PLAN["refuse"] = True
    assert opened(required=False).post().status_code == 409
    assert (effects(), LedgerEntry.objects.count()) == (0, 0)


@at_every_door_with("header")
def test_the_header_may_have_another_name(opened: Open, effects: Effects) -> None:
    caller = opened(header="X-Request-Key")
    missing = caller.post(key="k1")
    assert (missing.status_code, "X-Request-Key" in missing.content.decode()) == (400, True)
    answers = [caller.post(**{"X-Request-Key": "k1"}) for _ in range(2)]
    assert [replayed(answer) for answer in answers] == [False, True]
    assert effects() == 1


@at_every_door_with("principal")
def test_the_caller_may_be_named_by_the_view(opened: Open, user: User, effects: Effects) -> None:
    caller, other = opened(principal=the_shop), User.objects.create_user("bob")
    answers = [caller.post(key="k1"), caller.post(key="k1", user=other)]
    assert [replayed(answer) for answer in answers] == [False, True]
    assert "the-shop" in LedgerEntry.objects.get().scope


@at_every_door_with("lifetime")
@pytest.mark.usefixtures("without_redis")
def test_an_answer_may_have_a_lifetime(opened: Open, effects: Effects) -> None:
    caller = opened(lifetime=60)
    caller.post(key="k1")
    age(50)
    assert replayed(caller.post(key="k1"))
    age(20)
    gone = caller.post(key="k1")
    assert (gone.status_code, effects()) == (410, 1)


def test_a_lifetime_counts_in_redis_too(opened: Open, effects: Effects) -> None:
    caller = opened(lifetime=0)
    assert caller.post(key="k1").status_code == 201
    assert (caller.post(key="k1").status_code, effects()) == (410, 1)
    assert LedgerEntry.objects.get().response_body is None


def test_one_answer_may_have_a_lifetime_of_its_own(opened: Open, effects: Effects) -> None:
    PLAN["act"] = lambda call: call.set_lifetime(0)
    caller = opened()
    assert [caller.post(key="k1").status_code for _ in range(2)] == [201, 410]
    PLAN.clear()
    assert [replayed(caller.post(key="k2")) for _ in range(2)] == [False, True]
    assert effects() == 2


def test_a_refusal_that_is_not_stored_leaves_the_key_free(opened: Open, effects: Effects) -> None:
    PLAN.update(act=lambda call: call.do_not_store(), status=409)
    caller = opened()
    assert caller.post(key="k1").status_code == 409
    assert (effects(), LedgerEntry.objects.count()) == (0, 0)
    PLAN.clear()
    assert (caller.post(key="k1").status_code, effects()) == (201, 1)


def test_what_was_done_is_not_undone_under_an_answer_that_says_it_was(opened: Open, effects: Effects) -> None:
    PLAN["act"] = lambda call: call.do_not_store()
    with pytest.raises(
        RuntimeError, match=r"answered 201, and do_not_store\(\) would undo .* call\.set_lifetime\(0\)"
    ):
        opened().post(key="k1")
    assert (effects(), LedgerEntry.objects.count()) == (0, 0)


def test_an_answer_for_which_nothing_was_written_need_not_be_stored(user: User) -> None:
    @views.idempotent
    def search(request: HttpRequest, call: KeyedCall) -> HttpResponse:
        call.do_not_store()
        return HttpResponse(str(User.objects.count()))

    caller = Caller(search, user)
    assert [replayed(caller.post(key="k1")) for _ in range(2)] == [False, False]


@at_every_door_with("ignore")
def test_what_does_not_count_is_left_out_of_the_fingerprint(opened: Open) -> None:
    assert_sent_at_does_not_count(opened(ignore=["sent_at"]))


def test_a_function_may_choose_what_counts(opened: Open) -> None:
    assert_sent_at_does_not_count(opened(ignore=lambda body: {"items": body["items"]}))


def assert_sent_at_does_not_count(caller: Any) -> None:
    caller.post({"items": [1], "sent_at": 1}, key="k1")
    assert replayed(caller.post({"sent_at": 2, "items": [1]}, key="k1"))
    assert caller.post({"items": [2], "sent_at": 1}, key="k1").status_code == 422


@at_every_door_with("redact")
def test_a_replay_has_no_secret(opened: Open) -> None:
    caller = opened(redact=["secret"])
    first, again = (json.loads(caller.post(key="k1").content) for _ in range(2))
    assert (first["secret"], again["secret"]) == ("s3cret", "[redacted]")


def test_problems_are_shown_as_the_view_says(opened: Open, effects: Effects) -> None:
    def show(request: Any, problem: Problem) -> HttpResponse:
        return HttpResponse(f"sorry: {problem.code}", status=problem.status)

    caller = opened(on_problem=show)
    assert caller.post().content == b"sorry: idempotency_key_missing"
    PLAN["refuse"] = True
    refused = [caller.post(key="k1") for _ in range(2)]
    assert [answer.content for answer in refused] == [b"sorry: refused"] * 2
    assert [replayed(answer) for answer in refused] == [False, True]
    assert effects() == 0


def test_a_replay_may_be_counted_and_changed(opened: Open) -> None:
    seen = []

    def note(request: Any, response: HttpResponse) -> None:
        seen.append(request.user)
        response["X-Replays"] = "1"

    caller = opened(on_replay=note)
    first, again = caller.post(key="k1"), caller.post(key="k1")
    assert ("X-Replays" in first, again["X-Replays"], again["Cache-Control"]) == (False, "1", "no-store")
    assert seen == [caller.user]


@at_every_door_with("on_replay")
def test_a_setting_hooks_the_replays_of_every_view(opened: Open, settings: Any) -> None:
    caller = opened()
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "ON_REPLAY": "tests.integration.idempotency.urls.note_replay"}
    first, again = caller.post(key="k1"), caller.post(key="k1")
    assert ("X-Replays" in first, again["X-Replays"]) == (False, "of all")


def test_a_views_own_hook_counts_before_the_setting(opened: Open, settings: Any) -> None:
    settings.IDEMPOTENCY = {"ON_REPLAY": "tests.integration.idempotency.urls.note_replay"}
    caller = opened(on_replay=lambda request, response: None)
    assert ["X-Replays" in caller.post(key="k1") for _ in range(2)] == [False, False]


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
    assert effects() == 3


@pytest.mark.usefixtures("without_redis")
def test_a_window_begins_anew_with_the_first_call_after_it_and_has_no_edges(
    opened: Open, effects: Effects
) -> None:
    caller = opened(window=1000)
    caller.post()
    for generation in range(1, 4):
        for _ in range(3):  # up to 900 s after the first, wherever the clock stands
            age(300)
            assert replayed(caller.post())
        age(200)
        assert not replayed(caller.post())
        assert effects() == generation + 1
    assert {len(entry.key) for entry in LedgerEntry.objects.all()} == {1 + 64 + 1 + 10}


@pytest.mark.parametrize("redis", ["default", None])
def test_concurrent_repeats_within_a_window_execute_once(user: User, effects: Effects, redis: str | None) -> None:
    with override_settings(IDEMPOTENCY={"REDIS": redis}):
        caller = Caller(function(window=10), user)
        caller.post()
        age(11)
        answers = at_once(*[caller.post] * 8)
    assert effects() == 2
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert [replayed(answer) for answer in answers if answer.status_code == 201].count(False) == 1


def test_a_window_needs_a_caller(opened: Open, effects: Effects) -> None:
    answer = opened(window=10).post(user=AnonymousUser())
    assert (answer.status_code, effects()) == (400, 0)


def test_an_anonymous_repeat_within_a_window_runs_unkeyed_where_the_key_is_optional(
    opened: Open, user: User, effects: Effects
) -> None:
    caller = opened(window=10, required=False)
    anonymous = [caller.post(user=AnonymousUser()) for _ in range(2)]
    assert [(answer.status_code, replayed(answer)) for answer in anonymous] == [(201, False)] * 2
    assert [replayed(caller.post(user=user)) for _ in range(2)] == [False, True]
    assert effects() == 3


def test_a_key_counts_before_the_window(opened: Open, effects: Effects) -> None:
    caller = opened(window=10)
    assert [replayed(caller.post(key=key)) for key in ("k1", "k2", "k1")] == [False, False, True]
    assert effects() == 2


@at_every_door_with("mode")
@pytest.mark.parametrize("mode", [Mode.ATOMIC, Mode.PHASED])
def test_a_handler_has_a_transaction_or_none(opened: Open, mode: Mode) -> None:
    seen = []
    PLAN["act"] = lambda call: seen.append((connection.in_atomic_block, call.key_digest != ""))
    assert opened(mode=mode).post(key="k1").status_code == 201
    assert seen == [(mode is Mode.ATOMIC, True)]


@at_every_door_with("lease")
def test_a_lease_is_the_calls(opened: Open) -> None:
    leases = []

    def look(call: KeyedCall) -> None:
        entry = LedgerEntry.objects.get()
        assert entry.lease_until is not None
        leases.append((entry.lease_until - entry.created_at).total_seconds())

    PLAN["act"] = look
    assert opened(mode=Mode.PHASED, lease=300).post(key="k1").status_code == 201
    assert leases == [pytest.approx(300, abs=5)]


@at_every_door_with("wait")
def test_a_duplicate_waits_as_long_as_its_door_says(opened: Open, effects: Effects, settings: Any) -> None:
    inside, go = threading.Event(), threading.Event()

    def hold(call: KeyedCall) -> None:
        PLAN.pop("act")
        inside.set()
        assert go.wait(30)

    def second() -> Any:
        assert inside.wait(30)
        threading.Timer(0.2, go.set).start()
        return caller.post(key="k1")

    PLAN["act"] = hold
    settings.IDEMPOTENCY = {"MARKER_SECONDS": 30}
    caller = opened(wait=30)
    first, again = at_once(lambda: caller.post(key="k1"), second)
    assert (first.status_code, again.content, replayed(again)) == (201, first.content, True)
    assert effects() == 1


@pytest.mark.parametrize("mode", [Mode.ATOMIC, Mode.PHASED])
def test_switched_off_every_call_runs_and_says_so(
    opened: Open, effects: Effects, mode: Mode, settings: Any
) -> None:
    settings.IDEMPOTENCY = {"ENABLED": False}
    caller = opened(mode=mode)
    answers = [caller.post(key="k1"), caller.post(key="k1"), caller.post()]
    assert {(answer.status_code, answer["Idempotency"]) for answer in answers} == {(201, "disabled")}
    assert (effects(), LedgerEntry.objects.count()) == (3, 0)


def test_a_refusal_is_stored_also_under_rest_frameworks_own_handler(user: User, effects: Effects) -> None:
    """It knows no Problem and raises it again."""
    stock = {"EXCEPTION_HANDLER": "rest_framework.views.exception_handler"}
    PLAN["refuse"] = True
    with override_settings(REST_FRAMEWORK=stock):
        caller = Caller(DECORATED["APIView"](), user)
        refused = [caller.post(key="k1") for _ in range(2)]
    assert [(answer.status_code, replayed(answer)) for answer in refused] == [(409, False), (409, True)]
    assert effects() == 0


def test_redis_may_be_named_by_its_url(user: User, effects: Effects) -> None:
    with override_settings(IDEMPOTENCY={"REDIS": os.environ["REDIS_URL"]}):
        caller = Caller(function(), user)
        assert [replayed(caller.post(key="k1")) for _ in range(2)] == [False, True]
        LedgerEntry.objects.all().delete()
        assert replayed(caller.post(key="k1"))  # by Redis alone
    assert effects() == 1


@pytest.mark.parametrize("door", [views.idempotent, drf.idempotent, ninja.idempotent])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lifetme": 3}, r"no option 'lifetme'; did you mean 'lifetime'\?"),
        ({"wait_seconds": 3}, r"did you mean 'wait'\?"),
        ({"refuses_early": True}, "no option 'refuses_early'"),
        ({"zzz": 3}, "known are header, ignore"),
        ({"mode": "atomic"}, "mode='atomic'.*Mode or Phases"),
        ({"required": "yes"}, "required='yes'"),
        ({"wait": -1}, "wait=-1.*0 or more"),
        ({"wait": True}, "wait=True"),
        ({"lease": 5}, "lease=5.*only a phased handler"),
        ({"lease": 0, "mode": Mode.PHASED}, "lease=0.*more than 0"),
        ({"lifetime": "1 h"}, "lifetime='1 h'"),
        ({"header": "no header"}, "header='no header'"),
        ({"principal": "project.principal"}, "principal='project.principal'.*function"),
        ({"ignore": "sent_at"}, "ignore='sent_at'.*names"),
        ({"redact": "card"}, "redact='card'.*list of names"),
        ({"window": 0}, "window=0.*more than 0"),
        ({"on_problem": 1}, "on_problem=1"),
        ({"on_replay": 1}, "on_replay=1"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_named_where_it_is_written(
    door: Any, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(TypeError, match=sentence):
        door(**options)
