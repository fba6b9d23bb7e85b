"""The ledger in the admin: everything to see, nothing to change."""

import pytest
from django.test import Client

from idempotency.models import LedgerEntry
from tests.integration.idempotency.conftest import Caller


@pytest.fixture
def entry(caller: Caller, settings: object) -> LedgerEntry:
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


@pytest.mark.django_db(transaction=True)
def test_list_search_and_detail(admin_client: Client, entry: LedgerEntry) -> None:
    listed = admin_client.get("/admin/idempotency/ledgerentry/", {"q": "a-key"})
    assert b"a-key" in listed.content
    detail = admin_client.get(f"/admin/idempotency/ledgerentry/{entry.pk}/change/")
    assert "收据" in detail.content.decode()
    LedgerEntry.objects.update(response_body=None)
    assert b"not kept" in admin_client.get(f"/admin/idempotency/ledgerentry/{entry.pk}/change/").content


@pytest.mark.django_db(transaction=True)
def test_nothing_can_be_added_changed_or_deleted(admin_client: Client, entry: LedgerEntry) -> None:
    assert admin_client.get("/admin/idempotency/ledgerentry/add/").status_code == 403
    assert admin_client.post(f"/admin/idempotency/ledgerentry/{entry.pk}/change/", {"key": "b"}).status_code == 403
    assert (
        admin_client.post(f"/admin/idempotency/ledgerentry/{entry.pk}/delete/", {"post": "yes"}).status_code == 403
    )
    assert LedgerEntry.objects.get().key == "a-key"
