"""An atomic call that a deadlock or a serialization failure ended runs again."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import OperationalError, connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from idempotency import KeyedCall, once
from idempotency.models import LedgerEntry
from idempotency.observability import metrics
from idempotency.views import idempotent
from tests.integration.idempotency.conftest import Caller
from tests.integration.idempotency.functions.work import place
from tests.integration.idempotency.urls import PLAN

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]

EVERYONE = {"PRINCIPAL": "tests.integration.idempotency.urls.everyone"}
DEADLOCK, SERIALIZATION = "40P01", "40001"


def fail(code: str) -> None:
    """Have the server end this transaction by an error of this code."""
    with connection.cursor() as cursor:
        cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION 'it met another' USING ERRCODE = '{code}'; END $$")


class Failing:
    """Function whose first runs fail; counts them all."""

    def __init__(self, times: int, code: str = DEADLOCK) -> None:
        self.left, self.code, self.runs = times, code, 0

    def __call__(self) -> Any:
        self.runs += 1
        made = place()
        if self.left:
            self.left -= 1
            fail(self.code)
        return made


@pytest.fixture
def counted() -> Callable[[], dict[str, float]]:
    """Repeats since the test began, by reason."""

    def now() -> dict[str, float]:
        return {name: metrics.repeats.labels(name)._value.get() for name in ("deadlock", "serialization")}

    before = now()
    return lambda: {name: value - before[name] for name, value in now().items()}


@pytest.fixture(autouse=True)
def _everyone(settings: Any) -> None:
    settings.IDEMPOTENCY = EVERYONE


@pytest.mark.parametrize("redis", ["default", None])
@pytest.mark.parametrize(("code", "reason"), [(DEADLOCK, "deadlock"), (SERIALIZATION, "serialization")])
def test_a_function_runs_again_as_often_as_configured_and_its_first_writes_are_undone(
    code: str, reason: str, counted: Any, redis: str | None, settings: Any
) -> None:
    settings.IDEMPOTENCY = EVERYONE | {"REDIS": redis}
    function = Failing(5, code)
    with pytest.raises(OperationalError, match="it met another"):
        once("n", key="k").run(function)
    assert (function.runs, Group.objects.count(), LedgerEntry.objects.count()) == (3, 0, 0)
    assert once("n", key="k").run(function) == {"id": Group.objects.get().pk}
    assert (function.runs, counted()[reason], sum(counted().values())) == (6, 4, 4)


@pytest.mark.parametrize(
    ("code", "lease", "repeats"),
    [(DEADLOCK, None, 0), (DEADLOCK, 30, 2), ("55P03", None, 2)],
    ids=["turned off", "with a lease", "another error"],
)
def test_some_calls_never_run_again(code: str, lease: int | None, repeats: int, settings: Any) -> None:
    function = Failing(1, code)
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "REPEATS": repeats}
    with pytest.raises(OperationalError, match="it met another"):
        once("n", key="k", lease=lease).run(function)
    assert function.runs == 1


def test_where_it_cannot_begin_again_its_own_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    function = Failing(1)

    def fail_and_leave() -> Any:
        try:
            function()
        finally:
            connection.close()
            monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"host": "/nowhere"})

    with pytest.raises(OperationalError, match="it met another"):
        once("n", key="k").run(fail_and_leave)
    monkeypatch.undo()
    assert not connection.in_atomic_block
    assert once("n", key="k").run(function) == {"id": Group.objects.get().pk}


def test_a_hook_that_fails_after_the_commit_makes_no_second_run() -> None:
    def function() -> Any:
        transaction.on_commit(lambda: fail(DEADLOCK))
        return place()

    assert once("n", key="k").run(function) == {"id": Group.objects.get().pk}


def post(**what: Any) -> HttpRequest:
    return RequestFactory().post("/", headers={"Idempotency-Key": "k"}, **what)


def test_what_a_run_that_was_undone_said_of_its_answer_is_forgotten() -> None:
    function = Failing(1)

    @idempotent()
    def view(request: HttpRequest, call: KeyedCall) -> HttpResponse:
        if not function.runs:
            call.do_not_store()
            call.set_lifetime(0)
        return HttpResponse(str(function()))

    first, again = (view(post(data={}, content_type="application/json")) for _ in range(2))
    assert (function.runs, first.content) == (2, again.content)
    assert again.headers["Idempotent-Replayed"] == "true"


def test_a_view_of_an_upload_does_not() -> None:
    function = Failing(1)

    @idempotent
    def view(request: HttpRequest) -> HttpResponse:
        assert request.FILES["file"].read() == b"content"
        function()
        return HttpResponse()

    with pytest.raises(OperationalError, match="it met another"):
        view(post(data={"file": SimpleUploadedFile("file", b"content")}))
    assert function.runs == 1


def test_where_its_repeats_fail_too_a_handler_of_rest_framework_answers_503(caller: Caller) -> None:
    runs: list[int] = []
    PLAN["during"] = lambda: (runs.append(1), fail(DEADLOCK))
    assert caller.post("/held", body={"name": "a"}).status_code == 503
    assert len(runs) == 3
