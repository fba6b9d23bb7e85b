"""Both transports against a server that fails in every way."""

import gzip
import itertools
import pickle
import sqlite3
from pathlib import Path

import httpx
import pytest

from idempotency.client import (
    BodyTooLarge,
    FileKeys,
    GaveUp,
    IntentBoundElsewhere,
    MemoryKeys,
)
from tests import pages
from tests.integration.idempotency.client.conftest import (
    BREAK_OFF,
    CREATED,
    HANG_UP,
    IN_PROGRESS,
    STAY_SILENT,
    Says,
    Sends,
    Server,
)

UNAVAILABLE = Says(503, {}, b"the database is away")


def test_an_unsafe_call_gets_a_key_of_its_own(sends: Sends, server: Server) -> None:
    server.script = [CREATED] * 5
    answers = sends.all_of([(method, server.url, {}) for method in ("POST", "POST", "PUT", "PATCH", "DELETE")])
    assert (answers[0].status_code, answers[0].json()) == (201, {"id": 1})
    assert [answer.request.headers["Idempotency-Key"] for answer in answers] == server.keys
    assert (len(set(server.keys)), sends.slept) == (5, [])


def test_a_safe_call_passes_untouched_and_is_not_sent_again(sends: Sends, server: Server) -> None:
    server.script = [UNAVAILABLE, HANG_UP]
    assert sends("GET", server.url, extensions={"intent": "invoice-17"}).status_code == 503
    with pytest.raises(httpx.RemoteProtocolError):
        sends("GET", server.url)
    assert server.keys == [None, None]


@pytest.mark.parametrize(
    ("trouble", "wait"),
    [
        (HANG_UP, 0.125),
        (BREAK_OFF, 0.125),
        (IN_PROGRESS, 1.0),
        (Says(429, {"Retry-After": "7"}, b"slow down"), 7.0),
    ],
    ids=["hang up", "break off", "409", "429"],
)
def test_after_trouble_the_same_call_goes_out_again(
    trouble: Says | str, wait: float, sends: Sends, server: Server
) -> None:
    server.script = [trouble, CREATED]
    answer = sends("POST", f"{server.url}/orders?a=1", json={"item": 5})
    assert (answer.status_code, answer.json()) == (201, {"id": 1})
    assert server.received[0] == server.received[1]
    assert server.received[0].body == b'{"item":5}'
    assert server.keys[0] is not None
    assert sends.slept == [wait]


def test_giving_up_on_an_answer_or_an_error(sends: Sends, server: Server) -> None:
    server.script = [HANG_UP, UNAVAILABLE, UNAVAILABLE, HANG_UP]
    sends.options = {"attempts_max": 2}
    with pytest.raises(httpx.TransportError, match="outcome is unknown") as caught:
        sends("POST", server.url)
    for gave_up in (caught.value, pickle.loads(pickle.dumps(caught.value))):  # as from a worker of a process pool
        assert isinstance(gave_up, GaveUp)
        assert (gave_up.header, gave_up.key, gave_up.intent) == ("Idempotency-Key", server.keys[1], None)
        assert (gave_up.attempts, gave_up.__cause__) == (2, None)
        assert gave_up.last_response is not None
        assert (gave_up.last_response.status_code, gave_up.last_response.content) == (503, UNAVAILABLE.body)
        assert f"Retry with the same key, Idempotency-Key: {server.keys[1]}." in str(gave_up)
    assert caught.value.request.method == "POST"
    with pytest.raises(GaveUp, match="by the same intent 'invoice-17'") as hung_up:
        sends("POST", server.url, extensions={"intent": "invoice-17"})
    assert (hung_up.value.intent, hung_up.value.last_response) == ("invoice-17", None)
    assert isinstance(hung_up.value.__cause__, httpx.RemoteProtocolError)


def test_compressed_answers_are_understood_and_a_bad_one_is_kept_as_it_came(sends: Sends, server: Server) -> None:
    squeezed = {"Content-Encoding": "gzip"}
    server.script = [
        Says(409, {**IN_PROGRESS.headers, **squeezed}, gzip.compress(IN_PROGRESS.body)),
        Says(201, squeezed, gzip.compress(b"done")),
        Says(503, squeezed, b"not gzip"),
    ]
    assert (sends("POST", server.url).text, sends.slept) == ("done", [1.0])
    sends.options = {"attempts_max": 1}
    with pytest.raises(GaveUp) as caught:
        sends("POST", server.url)
    assert caught.value.last_response is not None
    assert caught.value.last_response.content == b"not gzip"


@pytest.mark.parametrize("header", ["Idempotency-Key", "Idempotency-Token"])
def test_the_caller_s_own_key_stays_and_is_sent_again(header: str, sends: Sends, server: Server) -> None:
    server.script = [HANG_UP, UNAVAILABLE]
    sends.options = {"attempts_max": 2}
    with pytest.raises(GaveUp, match=f"{header}: mine") as caught:
        sends("POST", server.url, headers={header: "mine"})
    assert (caught.value.header, caught.value.key) == (header, "mine")
    expected = ("mine", None) if header == "Idempotency-Key" else (None, "mine")
    assert [(received.key, received.token) for received in server.received] == [expected] * 2


def test_an_intent_has_one_key_also_for_the_next_process(tmp_path: Path, sends: Sends, server: Server) -> None:
    server.script = [CREATED] * 3
    for intent in ("invoice-17", "invoice-17", "invoice-18"):
        sends.keys = FileKeys(tmp_path / "keys")
        sends("POST", f"{server.url}/orders", extensions={"intent": intent})
    assert server.keys[0] == server.keys[1] != server.keys[2]


def test_nothing_is_sent_where_the_key_cannot_be_kept(tmp_path: Path, sends: Sends, server: Server) -> None:
    sends.keys = FileKeys(tmp_path / "keys")
    (tmp_path / "keys").unlink()
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        sends("POST", server.url, extensions={"intent": "invoice-17"})
    assert (server.received, list(tmp_path.iterdir())) == ([], [])  # nor is it replaced by an empty one


def test_an_intent_is_a_text_and_bound_to_one_address_without_its_password(sends: Sends, server: Server) -> None:
    server.script = [CREATED]
    sends.keys = MemoryKeys()
    sends("POST", server.url.replace("http://", "http://me:secret@") + "/orders#b", extensions={"intent": "i"})
    assert sends.keys.obtain("i", target=f"POST {server.url}/orders") == server.keys[0]
    for method, path in (("PUT", "/orders"), ("POST", "/refunds"), ("POST", "/orders?a=1")):
        with pytest.raises(IntentBoundElsewhere):
            sends(method, f"{server.url}{path}", extensions={"intent": "i"})
    for intent in ("", 17, b"invoice-17"):
        with pytest.raises(TypeError, match="an intent is a text"):
            sends("POST", server.url, extensions={"intent": intent})
    assert len(server.received) == 1


def test_a_redirect_keeps_the_key_of_the_intent(sends: Sends, server: Server) -> None:
    server.script = [Says(307, {"Location": "/elsewhere"}), HANG_UP, CREATED]
    sends.client_options = {"follow_redirects": True}
    answer = sends("POST", f"{server.url}/orders", content=b"order", extensions={"intent": "invoice-17"})
    assert answer.status_code == 201
    assert len(set(server.keys)) == 1
    assert [received.path for received in server.received] == ["/orders", "/elsewhere", "/elsewhere"]


def test_a_stream_or_a_file_is_sent_again_in_full(sends: Sends, server: Server) -> None:
    server.script = [HANG_UP, UNAVAILABLE, CREATED, HANG_UP, CREATED]
    sends("POST", server.url, content=sends.stream_of([b"one ", b"two"]))
    assert [received.body for received in server.received] == [b"one two"] * 3
    sends("POST", server.url, files={"upload": ("a.txt", b"receipt")})
    assert b"receipt" in server.received[3].body
    assert server.received[3] == server.received[4]


def test_a_stream_too_large_to_keep_is_refused_and_no_other_body(sends: Sends, server: Server) -> None:
    server.script = [CREATED, CREATED]
    sends.options = {"body_max_bytes": 10}
    for headers in ({}, {"Content-Length": "11"}):
        with pytest.raises(BodyTooLarge, match="more than 10 bytes"):
            sends("POST", server.url, content=sends.stream_of([b"123456", b"78901"]), headers=headers)
    sends("POST", server.url, content=sends.stream_of([b"12345", b"67890"]))
    sends("POST", server.url, content=b"x" * 11)
    assert [received.body for received in server.received] == [b"1234567890", b"x" * 11]


def test_no_attempt_may_outlive_the_deadline(sends: Sends, server: Server) -> None:
    server.script = [STAY_SILENT]
    sends.options = {"deadline_seconds": 0.1, "attempts_max": 1}
    sends.client_options = {"timeout": None}
    with pytest.raises(GaveUp) as caught:
        sends("POST", server.url)
    assert isinstance(caught.value.__cause__, httpx.ReadTimeout)
    # the request has its own time-outs back
    assert caught.value.request.extensions["timeout"]["read"] is None


def test_no_answer_drips_beyond_the_deadline(sends: Sends, server: Server) -> None:
    """Each part comes in time for itself; a second passes with each look at the clock."""
    server.script = [Says(200, body=b"x" * 4_000_000)]
    sends.options = {"deadline_seconds": 20, "clock": itertools.count().__next__}
    with pytest.raises(GaveUp, match="deadline of 20 s") as caught:
        sends("POST", server.url)
    assert (isinstance(caught.value.__cause__, httpx.ReadTimeout), len(server.keys)) == (True, 1)


def test_the_page_sends_a_call_again_under_its_key(server: Server, tmp_path: Path) -> None:
    (example,) = pages.blocks("docs/how-to/retry-from-python.md")
    server.script = [HANG_UP, CREATED]
    here = example.replace("https://pay.example", server.url).replace("/var/lib/billing", str(tmp_path))
    pages.run(here, refund={"amount": 5})
    first, again = server.received
    assert first == again
    assert (first.path, first.body, bool(first.key)) == ("/api/refunds", b'{"amount":5}', True)
