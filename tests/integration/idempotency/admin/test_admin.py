"""The ledger in the admin: everything to see, nothing to change."""

import base64
import json
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings

from idempotency.admin import answer_display
from idempotency.maintenance import request_log
from idempotency.models import LedgerEntry
from idempotency.redis import log_lines
from idempotency.redis.fastpath import breaker
from idempotency.request.keys import digest_of
from idempotency.response import encryption
from idempotency.response.answers import StoredResponse
from tests.integration.idempotency.conftest import Caller
from tests.running import until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def entry(caller: Caller) -> LedgerEntry:
    return LedgerEntry.objects.create(
        scope="user:1 POST things",
        key="a-key",
        fingerprint=b"\x00" * 32,
        mode="atomic",
        state="finished",
        owner="host:1:1",
        response_status=201,
        response_headers={"Location": "/things/1"},
        response_body='{"word": "收据"}'.encode(),
        finished_at="2026-01-01T00:00:00Z",
    )


def test_nothing_can_be_added_changed_or_deleted(admin_client: Client, entry: LedgerEntry) -> None:
    for page in ("add", f"{entry.pk}/change", f"{entry.pk}/delete"):
        asked = admin_client.post(f"/admin/idempotency/ledgerentry/{page}/", {"key": "b", "post": "yes"})
        assert asked.status_code == 403
    assert LedgerEntry.objects.get().key == "a-key"


def entry_page(admin_client: Client, **changes: object) -> str:
    """The detail page after `changes` to the one entry."""
    LedgerEntry.objects.update(**changes)
    page = f"/admin/idempotency/ledgerentry/{LedgerEntry.objects.get().pk}/change/"
    return admin_client.get(page).content.decode()


class TestStoredAnswer:
    def test_json_is_indented_and_headers_are_lines(self, admin_client: Client, entry: LedgerEntry) -> None:
        page = entry_page(admin_client, response_headers={"Location": "/things/1", "ETag": '"<1>"'})
        assert "{\n  &quot;word&quot;: &quot;收据&quot;\n}" in page
        assert "Location: /things/1<br>" in page or "<br>Location: /things/1" in page
        assert "ETag: &quot;&lt;1&gt;&quot;" in page

    @pytest.mark.usefixtures("collector_off")
    def test_others_are_shown_as_they_are_or_why_they_are_not(
        self, admin_client: Client, entry: LedgerEntry
    ) -> None:
        bodies = {
            b"\x89PNG\xff": "5 bytes that are not text.",
            b"": "Empty.",
            rb'["\ud83d"]': r"\ud83d",
            b"<script>alert(1)</script>": "&lt;script&gt;alert(1)&lt;/script&gt;",
            b"[" * 5000: "[[[",
            None: "not stored (it was too large): a retry is answered 410",
        }
        for body, words in bodies.items():
            assert words in entry_page(admin_client, response_body=body)
        purged = entry_page(admin_client, purged_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
        assert "not stored (removed 2026-01-02 03:04:05 UTC)" in purged
        entry.state = "uncertain"
        assert answer_display.body(entry) == "none yet"

    def test_a_huge_one_is_cut_off_and_that_is_said(self, admin_client: Client, entry: LedgerEntry) -> None:
        page = entry_page(admin_client, response_body=json.dumps(["x" * 30_000]).encode())
        assert "The first 20,000 of 30,008 characters." in page
        assert "x" * 19_000 in page
        assert "x" * 20_000 not in page

    def test_an_encrypted_one_is_opened_or_the_missing_key_is_named(
        self, admin_client: Client, entry: LedgerEntry
    ) -> None:
        keys = {"BODY_KEYS": {"2026-11": base64.b64encode(b"k" * 32).decode()}}
        with override_settings(IDEMPOTENCY=keys):
            plain = StoredResponse(status=201, headers={}, body=b'{"id": "inside"}')
            sealed = encryption.seal(plain, digest=digest_of(scope=entry.scope, key=entry.key))
            page = entry_page(admin_client, response_body=sealed.body, body_key_id=sealed.body_key_id)
            assert "inside" in page
            assert "Encrypted in the database, under the key 2026-11." in page
        assert "cannot be shown" in entry_page(admin_client)


def test_the_link_to_other_requests_finds_them_whatever_the_subject_is(
    admin_client: Client, entry: LedgerEntry
) -> None:
    page = entry_page(admin_client, subject="a&b#c+d")
    assert "?q=a%26b%23c%2Bd&quot;" in page or '?q=a%26b%23c%2Bd"' in page


def test_the_request_log_says_who_did_what(admin_client: Client, caller: Caller, user: User) -> None:
    with override_settings(ROOT_URLCONF="tests.integration.idempotency.urls"):
        caller.post()
        caller.post()
        caller.post(body={"name": "b"})
    until(lambda: len(log_lines.newest(limit=9) or ()) == 3)
    request_log.store()
    page = entry_page(admin_client, key="k1")
    assert f"POST /things by ann (user {user.pk})" in page
    at = [page.index(text) for text in ("422: the key belongs", "got the first answer again", "201: done")]
    assert at == sorted(at), "the newest first"
    for words in (">“name” has another value<", ">127.0.0.1<", "Calls wait in Redis until a worker stores them"):
        assert words in page
    breaker.failed(open_seconds=60)
    page = entry_page(admin_client)
    assert all(words in page for words in ("201: done", "Redis does not answer"))
    with override_settings(IDEMPOTENCY={"REDIS": None}):
        page = entry_page(admin_client)
    assert all(words in page for words in ("201: done", "the log needs Redis"))


def test_a_caller_is_named(admin_client: Client, entry: LedgerEntry) -> None:
    callers = {
        "user:none POST things": "by user none",
        "session:0123456789 POST things": "by a guest, session 01234567…",
        "anonymous POST things": "by an anonymous caller",
        "named:acme POST things": "by named:acme",
        "once:orders.place": ">once:orders.place<",
        "by:user:none once:orders.place": ">once:orders.place by user none<",
        "user:none POST ^things/(?P<pk>[0-9]+)$": ">POST /things/{pk} by user none<",
        "named:a in:b POST orders/<hexid:order_id>/cancel": ">POST /orders/{order_id}/cancel by named:a in:b<",
        "named:a POST POST ": ">POST / by named:a POST<",
        "user:none token": ">form, by one-time token by user none<",
        "of an earlier version": ">of an earlier version<",
    }
    for scope, words in callers.items():
        page = entry_page(admin_client, scope=scope)
        assert words in page
        assert "No call is in the log." in page
