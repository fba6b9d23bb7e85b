"""`assert_once` passes on right views and says of each wrong one what to change."""

import threading
from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache, caches
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction
from django.http import HttpRequest
from django.test import Client, RequestFactory, override_settings
from rest_framework.test import APIClient

from idempotency.models import LedgerEntry
from idempotency.testing import assert_once, faults
from tests.integration.idempotency.conftest import Effects
from tests.integration.idempotency.testing import views

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.integration.idempotency.testing.views"),
]

TRIALS = 5


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    views.ANSWERS.clear()
    assert not [thread for thread in threading.enumerate() if thread.name == "dead-after-commit"]


def request_by(user: User, **data: object) -> HttpRequest:
    request = RequestFactory().post("/orders", data)
    request.user = user
    return request


@pytest.fixture
def request_of(user: User) -> HttpRequest:
    return request_by(user, sku="mug")


class TestRightViews:
    @pytest.mark.parametrize("view", [views.plain, views.asynchronous, views.phased, views.two])
    def test_a_view_of_django(self, view: Any, request_of: HttpRequest, effects: Effects) -> None:
        cache.set("of the project", 1)
        assert_once(view, request_of, effects=effects)
        assert effects() == TRIALS * (2 if view is views.two else 1)
        assert LedgerEntry.objects.count() == TRIALS
        assert cache.get("of the project") == 1

    def test_money_may_be_counted(self, request_of: HttpRequest, effects: Effects) -> None:
        charged: Any = lambda: Decimal("19.90") * effects()  # noqa: E731
        assert_once(views.plain, request_of, effects=charged)
        assert effects() == TRIALS

    def test_files_go_with_each_copy(self, user: User, effects: Effects, tmp_path: Path) -> None:
        (tmp_path / "mug.png").write_bytes(b"photo")
        client = Client()
        client.force_login(user)
        with (tmp_path / "mug.png").open("rb") as photo:
            data = {"sku": "mug", "photo": photo, "more": [SimpleUploadedFile("back.png", b"back")]}
            assert_once("/orders", data, client=client, effects=effects)
        assert effects() == TRIALS

    @pytest.mark.urls("tests.integration.idempotency.protocol.doors")
    @pytest.mark.parametrize(
        ("address", "client", "post"),
        [
            ("/marked/function", Client(), {"content_type": "application/json"}),
            ("/marked/APIView", APIClient(), {"format": "multipart"}),
            ("/marked/Ninja sync", Client(), {}),
            ("/named/function", Client(), {}),
        ],
    )
    def test_an_address_behind_each_door(
        self, address: str, client: Client, post: dict[str, str], effects: Effects
    ) -> None:
        client.force_login(User.objects.create_superuser("root"))
        with override_settings(IDEMPOTENCY={"KEYED": ["/named/"]}):
            assert_once(address, {}, client=client, effects=effects, **post)
        assert effects() == TRIALS

    def test_an_address_for_everybody(self, effects: Effects) -> None:
        assert_once("/orders", {"sku": "mug"}, effects=effects)
        assert effects() == TRIALS

    @pytest.mark.parametrize("given", [{"REDIS": None}, {"WAIT_SECONDS": 5}])
    def test_a_view_with_a_header_of_its_own_whatever_the_settings(
        self, given: dict[str, Any], request_of: HttpRequest, effects: Effects
    ) -> None:
        with override_settings(IDEMPOTENCY=given):
            assert_once(views.of_its_own_header, request_of, header="X-Order", effects=effects, copies=3)
        assert effects() == TRIALS

    def test_a_view_that_takes_each_request_once(self, user: User, effects: Effects) -> None:
        baskets = count()
        assert_once(views.once_a_basket, lambda: request_by(user, basket=next(baskets)), effects=effects)
        assert effects() == TRIALS


NOT_KEYED = "the ledger has no row of the key, so the view is not keyed, or by something that forgets."
OUTSIDE = "the ledger has one answer for all, so an effect is outside of the keyed view's transaction"
WRONG = {
    views.not_keyed: f"2 effects of 2 copies with one key, one after the other: {NOT_KEYED} Put @idempotent on it, or "
    "name its path in IDEMPOTENCY['KEYED'].",
    views.remembered_by_the_cache: "2 effects of a call and its retry, between which Redis lost everything: "
    f"{NOT_KEYED}",
    views.looks_before_it_makes: "8 effects of 8 parallel copies with one key: the ledger has no row of the key",
    views.around: f"2 effects of 2 copies with one key, one after the other: {OUTSIDE}: in a decorator or middleware, "
    "or in another database, connection or service. Move it into the view and its transaction.",
    views.elsewhere: f"2 effects of a call whose commit failed, and of its retry: {OUTSIDE}",
    views.after: "0 effects of a call whose process died after the commit, and of its retry: the ledger has the "
    "answer, but an effect comes after the commit and is lost with the process.",
    views.refuses_the_second: "The retry was answered 400, and the first call 201.",
}


class TestWrongViews:
    @pytest.mark.parametrize("view", WRONG)
    def test_it_says_what_happened(self, view: Any, request_of: HttpRequest, effects: Effects) -> None:
        with pytest.raises(AssertionError) as failed:
            assert_once(view, request_of, effects=effects, copies=views.COPIES)
        assert str(failed.value).startswith(WRONG[view])


class TestWrongUse:
    def test_a_request_that_is_refused(self, user: User, effects: Effects) -> None:
        words = r"was answered 404 \(no such thing\) and had 0 effects\. Give assert_once a request"
        with pytest.raises(AssertionError, match=words):
            assert_once(views.plain, request_by(user, sku="other"), effects=effects)

    def test_inside_the_transaction_of_a_test_case_or_where_nothing_is_keyed(
        self, request_of: HttpRequest, effects: Effects
    ) -> None:
        for where, sentence in (
            (transaction.atomic(), r"Use TransactionTestCase, or @pytest.mark"),
            (override_settings(IDEMPOTENCY={"ENABLED": False}), r"'ENABLED'\] is False"),
        ):
            with where, pytest.raises(RuntimeError, match=sentence):
                assert_once(views.plain, request_of, effects=effects)
        assert effects() == 0

    def test_what_is_no_request_or_no_count(self, request_of: HttpRequest, effects: Effects) -> None:
        with pytest.raises(TypeError, match=r"or an address and data, and not {'sku': 'mug'}\."):
            assert_once(views.plain, {"sku": "mug"}, effects=effects)
        wrong: list[Any] = [0, User.objects.none(), User, User.objects.all]
        for each in wrong:
            with pytest.raises(TypeError, match=r"`effects` is a function that returns a number, such as Order\."):
                assert_once(views.plain, request_of, effects=each)

    def test_a_copy_that_raises(self, request_of: HttpRequest, effects: Effects) -> None:
        calls = count()

        @views.views.idempotent
        def view(request: HttpRequest) -> Any:
            if threading.current_thread().name.startswith("ThreadPool") and next(calls) == 0:
                raise ZeroDivisionError("the handler broke")
            return views.made()

        with pytest.raises(AssertionError, match="A parallel copy raised ZeroDivisionError: the handler broke"):
            assert_once(view, request_of, effects=effects)


def test_the_cache_of_the_sessions_is_not_lost_with_redis() -> None:
    """Else the caller would be another one."""
    memory = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    with override_settings(
        CACHES={name: {**memory, "LOCATION": name} for name in ("default", "sessions")},
        SESSION_ENGINE="django.contrib.sessions.backends.cached_db",
        SESSION_CACHE_ALIAS="sessions",
        IDEMPOTENCY={"REDIS": None},
    ):
        for name in ("default", "sessions"):
            caches[name].set("a", 1)
        with faults.redis_lost():
            assert (caches["default"].get("a"), caches["sessions"].get("a")) == (None, 1)
        assert caches["default"].get("a") == 1
