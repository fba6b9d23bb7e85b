"""One contract for every kind of view, by decorator or setting, under WSGI and ASGI."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.http import HttpRequest
from django.test import AsyncClient, Client, override_settings
from django.test.utils import CaptureQueriesContext

from idempotency.models import LedgerEntry
from tests.integration.idempotency.conftest import Effects
from tests.integration.idempotency.protocol import doors

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.integration.idempotency.protocol.doors"),
]

WAYS = [
    *(("marked", kind, "marked", "ASGI" if "async" in kind else "WSGI") for kind in doors.MARKED),
    *(("named", kind, ["/named/"], "ASGI" if "async" in kind else "WSGI") for kind in doors.NAMED),
    # differ from these by one comparison, or by the thread of the view: a sample
    *(("marked", kind, "unsafe", "WSGI") for kind in ("async function", "APIView", "api_view", "Ninja sync")),
    *(("named", kind, "unsafe", "WSGI") for kind in ("async function", "APIView")),
    *(("marked", kind, "marked", "ASGI") for kind in ("function", "APIView", "Ninja sync")),
    ("marked", "Ninja async", "marked", "WSGI"),
    ("named", "function", ["/named/"], "ASGI"),
]


class Door:
    """One kind of view, keyed in one way, and a logged-in caller who may use it."""

    def __init__(self, path: str, user: User, *, asgi: bool) -> None:
        self.path, self.user, self.permission = path, user, Permission.objects.get(codename="add_group")
        self.may()
        sync = Client(raise_request_exception=False)
        sync.force_login(user)
        self.client: Any = sync
        if asgi:
            self.client = AsyncClient(raise_request_exception=False)
            self.client.cookies = sync.cookies
        self.asgi = asgi

    def may(self, *, still: bool = True) -> None:
        (self.user.user_permissions.add if still else self.user.user_permissions.remove)(self.permission)

    def post(self, key: str | None = "k1", **fields: str) -> Any:
        return self._send("post", fields, headers={"Idempotency-Key": key} if key else {})

    def get(self) -> Any:
        return self._send("get", {})

    def _send(self, method: str, fields: dict[str, str], **options: Any) -> Any:
        call = getattr(self.client, method)
        return (async_to_sync(call) if self.asgi else call)(self.path, fields, **options)


def _called(way: tuple[str, str, Any, str]) -> str:
    place, kind, keyed, server = way
    return f"{server}-{kind} {place}, {'prefix' if isinstance(keyed, list) else keyed}"


@pytest.fixture(params=WAYS, ids=_called)
def door(request: pytest.FixtureRequest, user: User, plain_project: None) -> Iterator[Door]:
    """Open a door of a project whose middlewares are Django's."""
    place, kind, keyed, server = request.param
    with override_settings(IDEMPOTENCY={"KEYED": keyed}):
        yield Door(f"/{place}/{kind}", user, asgi=server == "ASGI")
    connection.close()


def test_every_door_keeps_the_contract(door: Door, effects: Effects) -> None:
    assert door.get().content.strip(b'"') == b"looked"
    missing, bad = door.post(None), door.post("k" * 256)
    assert (missing.status_code, missing.json()["code"]) == (400, "idempotency_key_missing")
    assert (bad.status_code, bad.json()["code"]) == (400, "idempotency_key_invalid")
    first, again = door.post(), door.post('"k1"')
    assert (first.status_code, again.status_code) == (201, 201)
    assert (first.content, first["Location"]) == (again.content, again["Location"])
    assert ("Idempotent-Replayed" in first, again["Idempotent-Replayed"]) == (False, "true")
    other = door.post(answer="other")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    door.may(still=False)  # asked before a replay, and before the key
    assert [door.post(key).status_code for key in ("k1", None)] == [403, 403]
    assert effects() == 1


def test_every_door_undoes_refusals_and_faults(door: Door, effects: Effects) -> None:
    for status in ("404", "409"):
        refused, again = (door.post(status, answer=status) for _ in range(2))
        assert (refused.status_code, again.status_code) == (int(status), int(status))
        assert (again.content, again["Idempotent-Replayed"]) == (refused.content, "true")
    assert door.post("k2", answer="500").status_code == 500
    assert (effects(), LedgerEntry.objects.count()) == (0, 2)
    assert door.post("k2").status_code == 201


@pytest.fixture
def named(user: User) -> Iterator[Callable[[str], Door]]:
    with override_settings(IDEMPOTENCY={"KEYED": ["/named/"]}):
        yield lambda kind: Door(f"/named/{kind}", user, asgi=False)


def test_an_exempt_view_or_method_and_another_path_need_no_key(
    named: Callable[[str], Door], effects: Effects
) -> None:
    assert named("exempt").post(None).status_code == 200
    partly = named("partly")
    assert partly.client.put("/named/partly").status_code == 200
    assert partly.post(None).status_code == 400
    for keyed in ({"KEYED": ["/elsewhere/"]}, {}):
        with override_settings(IDEMPOTENCY=keyed):
            assert [named(kind).post(None).status_code for kind in ("function", "APIView")] == [201, 201]
    assert (effects(), LedgerEntry.objects.count()) == (6, 0)


def test_nothing_of_the_project_is_changed(named: Callable[[str], Door]) -> None:
    view = doors.NAMED["APIView"]
    before = (view.cls, view.cls.post, view.cls.__subclasses__())
    named("APIView").post()
    assert (view.cls, view.cls.post) == before[:2]
    assert {cls.__qualname__ for cls in view.cls.__subclasses__()} == {view.cls.__qualname__}


def statements_of(door: Door) -> list[int]:
    """How many a first call sends, and a replay."""
    door.post("warm")
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as queries:
            assert door.post("k1").status_code == 201
        counts.append(len(queries))
    return counts


def test_no_door_costs_a_statement_more_than_that_of_functions(user: User) -> None:
    with override_settings(IDEMPOTENCY={"KEYED": ["/named/"]}):
        counts = {
            (place, kind): statements_of(Door(f"/{place}/{kind}", user, asgi=False))
            for place, kinds in (("marked", doors.MARKED), ("named", doors.NAMED))
            for kind in {"function", "class", "APIView", "ViewSet", "api_view", "Ninja sync"} & kinds.keys()
        }
    for (_, kind), count in counts.items():
        assert count == counts["marked", kind]  # the setting costs none more
        assert all(here <= least for here, least in zip(count, counts["marked", "function"], strict=True)), kind


SEEN: list[str] = []


def reports(get_response: Any) -> Any:
    """Hear of what views raise, as a middleware of error reports does."""

    def middleware(request: HttpRequest) -> Any:
        return get_response(request)

    middleware.process_exception = lambda request, exception: SEEN.append(str(exception))  # type: ignore[attr-defined]
    return middleware


def test_other_middlewares_hear_of_what_a_view_raises(named: Callable[[str], Door], settings: Any) -> None:
    settings.MIDDLEWARE = [f"{__name__}.reports", *settings.MIDDLEWARE]
    SEEN.clear()
    assert named("function").post(answer="500").status_code == 500
    assert SEEN == ["the handler broke"]
