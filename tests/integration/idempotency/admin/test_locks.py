"""What operators see of a lock and do about it: the admin's page, the release by force, the command."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client

from idempotency.locks import Lock, LockLost, NotHeld, ReadWriteLock
from idempotency.locks.postgres import AdvisoryLock

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/admin/idempotency/ledgerentry/locks/"
NAME = "order 7 & <b>"


@pytest.fixture
def held() -> Iterator[Lock]:
    """A lock that a person named holds."""
    lock = Lock(NAME, owner="worker 3", lease_seconds=600)
    assert lock.acquire(wait_seconds=10)
    yield lock
    with contextlib.suppress(NotHeld):
        lock.release()


def release(kind: str, token: int | None) -> dict[str, Any]:
    return {"name": NAME, "kind": kind, "token": token}


def test_the_page_names_holders_and_queue(admin_client: Client, held: Lock) -> None:
    read = ReadWriteLock(NAME, owner="reader", lease_seconds=600).read
    advisory = AdvisoryLock(NAME)
    with read, advisory:
        page = admin_client.get(PAGE, {"name": NAME}).content.decode()
    for words in ("order 7 &amp; &lt;b&gt;", "named:worker 3", "named:reader", str(held.token), "Nobody waits"):
        assert words in page
    assert "AdvisoryLock" in page
    assert page.count("Release by force") == 2  # not for a session of PostgreSQL
    assert "Nobody holds a lock" in admin_client.get(PAGE, {"name": "another"}).content.decode()
    assert "must not be empty or begin" in admin_client.get(PAGE, {"name": "}"}).content.decode()
    assert admin_client.get(PAGE).status_code == 200


def test_a_lock_is_released_by_force_with_a_reason(admin_client: Client, held: Lock) -> None:
    address = f"{PAGE}release/"
    asked = admin_client.get(address, release("lock", held.token))
    assert "named:worker 3" in asked.content.decode()
    query = asked.wsgi_request.get_full_path()
    assert "This field is required" in admin_client.post(query, {}).content.decode()
    assert Lock(NAME).locked()
    done = admin_client.post(query, {"note": "its machine burned"}, follow=True)
    assert "released by force" in done.content.decode()
    assert not Lock(NAME).locked()
    line = LogEntry.objects.get()
    assert line.object_repr == f"lock {NAME!r}"
    assert "named:worker 3" in line.change_message
    assert "its machine burned" in line.change_message
    with pytest.raises(LockLost):
        held.release()


def test_the_next_holder_is_not_put_out_by_an_old_page(admin_client: Client, held: Lock) -> None:
    old = held.token
    held.release()
    assert held.acquire(wait_seconds=10)
    assert held.token != old
    late = admin_client.post(
        f"{PAGE}release/?name=order+7+%26+%3Cb%3E&kind=lock&token={old}", {"note": "late"}, follow=True
    )
    assert "does not have the lock any more" in late.content.decode()
    assert held.locked()
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("query", [{}, release("advisory", 1), release("lock", None), release("nonsense", 1)])
def test_a_link_that_names_nothing_leads_back(admin_client: Client, query: dict[str, Any]) -> None:
    found = admin_client.get(f"{PAGE}release/", {key: value for key, value in query.items() if value is not None})
    assert found["Location"] == PAGE


@pytest.mark.parametrize(("rights", "sees", "releases"), [([], 403, 403), (["view_ledgerentry"], 200, 403)])
def test_it_needs_the_permissions(client: Client, held: Lock, rights: list[str], sees: int, releases: int) -> None:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    client.force_login(user)
    page = client.get(PAGE, {"name": NAME})
    assert page.status_code == sees
    assert b"Release by force" not in page.content
    assert client.post(f"{PAGE}release/", {"note": "x"}).status_code == releases


def test_the_command_shows_a_lock(held: Lock, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("idempotency", "locks", "show", NAME)
    assert f"token {held.token}" in capsys.readouterr().out
    call_command("idempotency", "locks", "show", "another")
    assert "Nobody holds" in capsys.readouterr().out
    with pytest.raises(CommandError, match="must not be empty"):
        call_command("idempotency", "locks", "show", "}")
