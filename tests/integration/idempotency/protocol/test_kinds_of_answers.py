"""Every kind of request and answer: encodings, files, sessions, clients gone."""

import asyncio
import gzip
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, Group, User
from django.contrib.sessions.backends.signed_cookies import SessionStore as SignedCookie
from django.core.asgi import get_asgi_application
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection, connections
from django.http import HttpResponse
from django.test import AsyncClient, Client, RequestFactory, override_settings

from idempotency.models import LedgerEntry, State
from idempotency.protocol.tokens import issue_for_page
from tests.integration.idempotency.conftest import Caller, Effects
from tests.integration.idempotency.urls import PLAN, plain

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]
KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"  # guests: nothing but it stands for the caller


def post(client: Client, path: str, key: str = KEY, **data: Any) -> HttpResponse:
    return client.post(path, data, headers={"Idempotency-Key": key})  # type: ignore[return-value]


def test_an_answer_compressed_below_us_is_stored_plain_and_above_us_as_asked(
    client: Client, effects: Effects, settings: Any
) -> None:
    settings.MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware", *settings.MIDDLEWARE]
    plain, zipped = {"Idempotency-Key": KEY}, {"Idempotency-Key": KEY, "Accept-Encoding": "gzip"}
    first, again = client.post("/zipped", headers=zipped), client.post("/zipped", headers=plain)
    assert (first["Content-Encoding"], "Content-Encoding" in again) == ("gzip", False)
    assert again.content == gzip.decompress(first.content)
    answers = [client.post("/long", headers=asked) for asked in (zipped, plain, zipped)]
    assert gzip.decompress(answers[0].content) == answers[1].content == gzip.decompress(answers[2].content)
    assert [answer.get("Idempotent-Replayed") for answer in answers] == [None, "true", "true"]
    assert effects() == 2


def test_a_file_sent_again_is_the_same_request_and_another_is_not(client: Client, effects: Effects) -> None:
    def upload(content: bytes, name: str = "a.txt", key: str = KEY) -> HttpResponse:
        return post(client, "/upload", key, note="n", file=SimpleUploadedFile(name, content, "text/plain"))

    first = upload(b"one")
    assert first.content == b"one"
    again = upload(b"one")  # another boundary, the same fields and bytes
    assert (again.content, again["Idempotent-Replayed"]) == (b"one", "true")
    assert upload(b"two").status_code == 422
    assert upload(b"one", name="b.txt").status_code == 422
    with override_settings(FILE_UPLOAD_MAX_MEMORY_SIZE=10):  # through a temporary file
        large = [upload(b"x" * 100_000, key=f"{KEY}-large") for _ in range(2)]
    assert [answer.get("Idempotent-Replayed") for answer in large] == [None, "true"]
    assert effects() == 2


def test_answers_without_a_body_are_replayed_without_one(client: Client, effects: Effects) -> None:
    for status in (200, 202, 204, 205, 302, 303, 304):
        PLAN["status"] = status
        first, again = (post(client, "/bodyless", key=f"{KEY}-{status}") for _ in range(2))
        assert first.status_code == again.status_code == status
        assert (again.content, again["Idempotent-Replayed"], again["ETag"]) == (b"", "true", first["ETag"])
    assert effects() == 7


@pytest.mark.parametrize("has_session", [True, False], ids=["its own session", "a new one"])
def test_a_run_that_lost_the_race_leaves_nothing_in_the_session(
    client: Client, effects: Effects, redis_server: redis.Redis, has_session: bool
) -> None:
    duplicate = Client()
    if has_session:
        duplicate.cookies["sessionid"] = client.session.session_key

    def be_overtaken() -> None:
        redis_server.flushall()
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: (post(duplicate, "/checkout"), connection.close())).result()

    PLAN["during"] = be_overtaken
    lost = post(client, "/checkout")
    assert (lost.status_code, lost["Idempotent-Replayed"], effects()) == (303, "true", 1)
    assert duplicate.session["order"] == Group.objects.get().pk
    if has_session:
        assert client.session["order"] == Group.objects.get().pk
    else:
        assert not lost.cookies


def test_a_stream_is_done_and_not_given_again(client: Client, effects: Effects) -> None:
    first = post(client, "/streamed")
    assert b"".join(first.streaming_content) == b"one two"  # type: ignore[attr-defined]
    again = post(client, "/streamed")
    assert (again.status_code, again["Location"]) == (410, "/things/streamed")
    assert effects() == 1


class TestAtomicRequests:
    @pytest.fixture(autouse=True)
    def _on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)

    def test_a_plain_view_leaves_it_and_its_safe_methods_do_not(self, client: Client, effects: Effects) -> None:
        first, again = post(client, "/plain"), post(client, "/plain")
        assert (first.status_code, again["Idempotent-Replayed"]) == (303, "true")
        refused, once_more = (post(client, "/plain", f"{KEY}-2", refuse="1") for _ in range(2))
        assert (refused.status_code, once_more["Idempotent-Replayed"], effects()) == (409, "true", 1)
        client.get("/plain")
        assert PLAN["seen"] == [True]

    @pytest.mark.parametrize("path", ["/mixed", "/set"])
    def test_the_mixin_does_the_same_for_drf(self, caller: Caller, effects: Effects, path: str) -> None:
        first, again = caller.post(path), caller.post(path)
        assert (first.status_code, again.content, again["Idempotent-Replayed"]) == (201, first.content, "true")
        assert effects() == 1

    def test_a_decorated_drf_method_without_the_mixin_is_an_error_that_executes_nothing(
        self, caller: Caller, effects: Effects
    ) -> None:
        assert caller.post().status_code == 500
        assert effects() == 0


def test_files_larger_than_a_body_may_be_go_through_rest_framework_too(caller: Caller, effects: Effects) -> None:
    def upload(content: bytes) -> HttpResponse:
        sent = {"note": "n", "file": SimpleUploadedFile("a.bin", content)}
        return caller.client.post("/mixed", sent, format="multipart", headers={"Idempotency-Key": KEY})

    # the shop's own takes no files
    others = [name for name in settings.MIDDLEWARE if name != "shop.platform.middleware.BodyMiddleware"]
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=1_000, MIDDLEWARE=others):
        answers = [upload(b"x" * 2_000), upload(b"x" * 2_000), upload(b"y" * 2_000)]
    assert [answer.status_code for answer in answers] == [201, 201, 422]
    assert (answers[1].content, effects()) == (answers[0].content, 1)


def test_a_keyed_handler_that_calls_a_keyed_one_owns_the_key(caller: Caller, effects: Effects) -> None:
    first, again = caller.post("/child"), caller.post("/child")
    assert (first.status_code, again.status_code, again["Idempotent-Replayed"]) == (201, 201, "true")
    assert (again.content, effects(), LedgerEntry.objects.count()) == (first.content, 2, 1)


async def test_a_client_that_goes_away_does_not_stop_what_was_begun(user: User) -> None:
    PLAN.update(inside=asyncio.Event(), go=asyncio.Event())
    client = AsyncClient()
    await client.aforce_login(user)
    cookie = client.cookies["sessionid"].value
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/slow",
        "query_string": b"",
        "headers": [
            (b"idempotency-key", b"gone"),
            (b"content-type", b"application/json"),
            (b"cookie", f"sessionid={cookie}".encode()),
        ],
        "server": ("testserver", 80),
        "client": ("127.0.0.1", 1),
        "scheme": "http",
    }
    communicator = ApplicationCommunicator(get_asgi_application(), scope)
    await communicator.send_input({"type": "http.request", "body": b"{}", "more_body": False})
    await asyncio.wait_for(PLAN["inside"].wait(), 30)
    await communicator.send_input({"type": "http.disconnect"})
    PLAN["go"].set()
    await communicator.wait(30)
    entry = await LedgerEntry.objects.aget()
    assert entry.state == State.FINISHED
    assert await Group.objects.acount() == 1
    await sync_to_async(connections.close_all)()  # what this test itself asked


PLANNED = {"PRINCIPAL": "tests.integration.idempotency.urls.planned_principal"}
OF_EVERY_GUEST = [str(AnonymousUser()), "user:None", "guest/undefined", "key=null", "Guest", "user:"]


@pytest.mark.parametrize(
    ("known", "idempotency", "principal", "sentence"),
    [
        ({"user": User()}, {}, None, r"IDEMPOTENCY\['PRINCIPAL'\]"),  # without a number
        ({"session": SignedCookie()}, {}, None, r"IDEMPOTENCY\['PRINCIPAL'\]"),  # which changes its key
        *(({}, PLANNED, no_name, "must return the caller's name") for no_name in (None, "  ", 7, "x" * 256)),
        *(
            ({"user": nobody}, PLANNED, name, rf"names this caller {name!r}, as it would every other guest")
            for name in OF_EVERY_GUEST
            for nobody in (None, AnonymousUser(), User())
        ),
    ],
)
def test_a_caller_that_nothing_names_is_an_error_and_not_everybody(
    effects: Effects, settings: Any, known: Any, idempotency: Any, principal: Any, sentence: str
) -> None:
    settings.IDEMPOTENCY, PLAN["principal"] = idempotency, principal
    request = RequestFactory().post("/plain", headers={"Idempotency-Key": "k"})
    vars(request).update(known)
    with pytest.raises(RuntimeError, match=sentence):
        plain(request)
    assert effects() == 0


def test_a_principal_may_look_like_one_of_every_guest_and_no_page_needs_one(
    effects: Effects, settings: Any, user: User
) -> None:
    settings.IDEMPOTENCY = PLANNED
    names = ["guest:5f0e", "device:abc_", "YWJjZA==", "https://issuer.example/", "team none"]
    for who, name in [*((user, name) for name in OF_EVERY_GUEST), *((None, name) for name in names)]:
        PLAN["principal"] = name
        request = RequestFactory().post("/plain", headers={"Idempotency-Key": "k"})
        request.user = who  # type: ignore[assignment]
        assert plain(request).status_code == 303
    PLAN["principal"] = "user:None"
    assert issue_for_page(RequestFactory().get("/plain"), intent="a basket")


@pytest.mark.parametrize("store", [{}, {"REDIS": None}], ids=["Redis", "no Redis"])
def test_what_fails_after_the_commit_does_not_hide_that_it_is_done(
    client: Client, effects: Effects, caplog: pytest.LogCaptureFixture, store: dict[str, Any]
) -> None:
    PLAN["raise"] = ZeroDivisionError("in a hook")
    with override_settings(IDEMPOTENCY=store):
        answers = [post(client, "/hooked") for _ in range(2)]
    assert [(answer.status_code, answer.content) for answer in answers] == [(201, b"hooked")] * 2
    assert effects() == 1
    assert caplog.text.count("in a hook") == 1


def test_a_process_that_is_to_end_ends(client: Client, user: User, effects: Effects) -> None:
    client.force_login(user)
    client.raise_request_exception = False  # it would keep this one, and raise it again
    PLAN["raise"] = SystemExit(1)
    with pytest.raises(SystemExit):
        post(client, "/hooked")
    again = post(client, "/hooked")
    assert (again.status_code, again["Idempotent-Replayed"], effects()) == (201, "true", 1)
