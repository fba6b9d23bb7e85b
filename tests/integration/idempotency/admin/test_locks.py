"""Operators see a lock and release it by force, on the admin's page and by the command."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils.html import escape
from kazoo.client import KazooClient
from redis import Redis

from idempotency.admin import lock_kinds
from idempotency.locks import (
    CountDownLatch,
    FairLock,
    HostSemaphore,
    Lock,
    LockError,
    LockLost,
    NotHeld,
    PermitExpirableSemaphore,
    Rate,
    RateLimiter,
    ReadWriteLock,
    RedLock,
    Semaphore,
    TokenBucket,
)
from idempotency.locks.postgres import AdvisoryLock
from idempotency.locks.zookeeper import ZooKeeperLock, ZooKeeperSemaphore
from tests.integration.idempotency.locks.actors import Actor, until
from tests.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/admin/idempotency/ledgerentry/locks/"
NAME = "order 7 & <b>"
LEASE: Any = {"owner": "worker 3", "lease_seconds": 600}


@contextlib.contextmanager
def permit(_: None) -> Iterator[None]:
    """One of two permits, which anyone may give back."""
    semaphore = PermitExpirableSemaphore(NAME, permits=2)
    taken = semaphore.acquire(lease_seconds=600)
    assert taken
    yield
    semaphore.release(taken)


# kind of the page -> makes a hold of it with the fixture of `CLIENTS`, and says what else the page shows
HOLDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "lock": (lambda _: FairLock(NAME, **LEASE), "named:worker 3"),
    "read": (lambda _: ReadWriteLock(NAME, **LEASE).read, "named:worker 3"),
    "write": (lambda _: ReadWriteLock(NAME, **LEASE).write, "named:worker 3"),
    "semaphore": (lambda _: Semaphore(NAME, permits=2, **LEASE), "s left"),
    "permits": (permit, "s left"),
    "advisory": (lambda _: AdvisoryLock(NAME, owner="worker 3"), "as long as its session"),
    "redlock": (lambda clients: RedLock(NAME, clients=clients, **LEASE), "named:worker 3"),
    "zookeeper": (lambda client: ZooKeeperLock(NAME, client=client, owner="worker 3"), "named:worker 3"),
    "zookeeper-permits": (
        lambda client: ZooKeeperSemaphore(NAME, permits=1, client=client),
        "as long as its session",
    ),
}
CLIENTS = {
    "redlock": "redlock_clients",
    "zookeeper": "zookeeper_client",
    "zookeeper-permits": "zookeeper_client",
}


def also_asked(settings: Any, **servers: Any) -> None:
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "LOCK_SERVERS": servers}


@pytest.fixture
def redlock_clients(settings: Any) -> Iterator[list[Redis]]:
    """Of three databases, which are as three servers here."""
    urls = [re.sub(r"db=\d+", f"db={number}", os.environ["REDIS_URL"]) for number in (1, 2, 3)]
    also_asked(settings, redlock=urls)
    clients = [Redis.from_url(url) for url in urls]
    yield clients
    for client in clients:
        client.flushdb()
        client.close()


@pytest.fixture
def zookeeper_client(settings: Any, zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    also_asked(settings, zookeeper=zookeeper_server.hosts)
    client = KazooClient(zookeeper_server.hosts, timeout=20.0)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture(params=HOLDS)
def hold(request: pytest.FixtureRequest) -> tuple[str, Any, str]:
    """Kind, a hold to enter, and what is shown of it."""
    make, words = HOLDS[request.param]
    named = CLIENTS.get(request.param)
    return request.param, make(request.getfixturevalue(named) if named else None), words


@pytest.fixture
def actor() -> Iterator[Actor]:
    """A thread that holds or waits beside the test's own."""
    made = Actor()
    yield made
    made.end()


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


def seen(client: Client) -> str:
    return client.get(PAGE, {"name": NAME}).content.decode()


def released(client: Client, note: str) -> str:
    """Follow the page's only link to a release, and return what is said then."""
    (address,) = re.findall(r'href="([^"]*/release/[^"]*)"', seen(client))
    return client.post(address.replace("&amp;", "&"), {"note": note}, follow=True).content.decode()


def test_the_next_holder_is_not_put_out_by_an_old_page(admin_client: Client, held: Lock) -> None:
    old = held.token
    held.release()
    assert held.acquire(wait_seconds=10)
    assert held.token != old
    query = urlencode(release("lock", old))
    late = admin_client.post(f"{PAGE}release/?{query}", {"note": "late"}, follow=True)
    assert "does not have the lock any more" in late.content.decode()
    assert held.locked()
    assert not LogEntry.objects.exists()


def test_a_link_that_names_nothing_leads_back(admin_client: Client) -> None:
    brace = {"name": "}", "kind": "lock", "token": 1}
    for query in ({}, {"name": NAME, "kind": "lock"}, release("nonsense", 1), brace):
        assert admin_client.get(f"{PAGE}release/", query)["Location"] == PAGE
    assert "must not be empty or begin" in admin_client.get(PAGE, {"name": "}"}).content.decode()
    assert admin_client.get(PAGE).status_code == 200


def test_it_needs_the_permissions(client: Client, held: Lock) -> None:
    user = User.objects.create_user("staff", is_staff=True)
    client.force_login(user)
    pages = (PAGE, "/admin/idempotency/ledgerentry/statistics/")
    assert [client.get(page, {"name": NAME}).status_code for page in pages] == [403, 403]
    user.user_permissions.set(Permission.objects.filter(codename="view_ledgerentry"))
    shown = [client.get(page, {"name": NAME}) for page in pages]
    assert [(page.status_code, b"Release by force" in page.content) for page in shown] == [(200, False)] * 2
    refused = client.post(f"{PAGE}release/", {"note": "x"})
    assert refused.status_code == 403
    assert "needs the permission idempotency.close_ledgerentry for this." in refused.text


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    """What the command prints about the name."""
    call_command("idempotency", "locks", "show", NAME)
    return capsys.readouterr().out


def test_every_kind_is_shown_and_released_from_the_page(
    hold: tuple[str, Any, str], admin_client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, taken, words = hold
    with contextlib.suppress(LockError), taken:
        assert words in seen(admin_client)
        assert words in shown(capsys)
        assert "This field is required" in released(admin_client, "")
        done = released(admin_client, "its machine burned")
        assert "released by force" in done
        assert f"Nobody holds a lock named <strong>{escape(NAME)}" in done
        line = LogEntry.objects.get()
        assert (line.object_repr, "its machine burned" in line.change_message) == (f"{kind} {NAME!r}", True)


def test_a_permit_of_this_machine_is_shown_and_says_what_ends_it(
    admin_client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    with HostSemaphore(NAME, permits=1, owner="worker 3"):
        assert all("named:worker 3" in text for text in (seen(admin_client), shown(capsys)))
        assert "without success (Only the end of its process" in released(admin_client, "gone")
    assert "Nobody holds" in shown(capsys)


def test_the_command_releases_one_hold_that_is_named(
    held: Lock, admin_user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*more: str, operator: str = "admin") -> None:
        wanted = ["--release", f"--operator={operator}", "--note", "it burned"]
        call_command("idempotency", "locks", "show", NAME, *wanted, *more)

    assert f"token {held.token}" in shown(capsys)
    with pytest.raises(CommandError, match="must not be empty"):
        call_command("idempotency", "locks", "show", "}")
    readers = [ReadWriteLock(NAME, owner=f"reader {number}", lease_seconds=600).read for number in (1, 2)]
    with contextlib.suppress(LockLost), readers[0], readers[1]:
        for more in ([], ["--kind=read"], ["--kind=write"], ["--token=1"]):
            with pytest.raises(CommandError, match="--kind and --token must name one hold"):
                ask(*more)
        with pytest.raises(CommandError, match="no active user 'nobody'"):
            ask("--kind=lock", operator="nobody")
        with pytest.raises(CommandError, match="--note says nothing"):
            ask("--kind=lock", "--note= ")
        assert not LogEntry.objects.exists()
        ask("--kind=read", f"--token={readers[0].token}")
        left = shown(capsys)
        assert ("reader 1" in left, "reader 2" in left, "worker 3" in left) == (False, True, True)
        ask("--kind=lock")
        assert not held.locked()
    assert "Nobody holds" in shown(capsys)
    line = LogEntry.objects.get(object_repr=f"lock {NAME!r}")
    assert (line.user, "it burned" in line.change_message) == (admin_user, True)


def test_a_server_that_is_away_is_named(
    settings: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_kinds, "ANSWER_SECONDS", 0.2)
    also_asked(settings, zookeeper="127.0.0.1:1", redlock=[f"redis://127.0.0.1:{port}/0" for port in (1, 2, 3)])
    with pytest.raises(CommandError, match="Not every kind could be asked"):
        shown(capsys)
    page = capsys.readouterr().out
    assert "ZooKeeperLock: ZooKeeper did not reply" in page
    assert f"RedLock: {NAME!r}: too few servers replied" in page


def test_totals_counts_and_rates_are_shown(
    admin_client: Client, admin_user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    Semaphore(NAME).set_total(7)
    CountDownLatch(NAME).open(3)
    RateLimiter(NAME).set_rate(Rate(5, 60, 2))
    RateLimiter(NAME).acquire()
    RateLimiter(NAME).acquire(caller="shop <3>")
    TokenBucket(NAME, permits=10, interval_seconds=600).acquire(4)
    page = seen(admin_client)
    share = "shop <3> has used 1 of its 2"
    rate = "5 permits in 60 s, 2 of a caller; 3 free"
    for words in ("7 permits in all", "3 left", rate, share, "4 permits counted"):
        assert escape(words) in page
        assert words in shown(capsys)
    for kind, words in (("latch", "3 left"), ("rate", "5 permits"), ("bucket", "counted")):
        wanted = [f"--kind={kind}", "--release", "--operator=admin", "--note=begin again"]
        call_command("idempotency", "locks", "show", NAME, *wanted)
        assert words not in shown(capsys)
    assert "/release/" not in seen(admin_client)
    assert LogEntry.objects.count() == 3


def test_who_waits_for_a_latch_is_named_and_it_is_ended_from_the_page(
    actor: Actor, admin_client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    latch = CountDownLatch(NAME)
    latch.open(1)
    waiting = actor.begin(latch.wait)
    until(lambda: latch.waiters() == 1)
    (waiter,) = latch.state().waiters
    assert f"/{os.getpid()}/" in waiter
    assert f"1. in the queue: {waiter}" in shown(capsys)
    assert f"<li>{waiter}</li>" in seen(admin_client)
    asked = admin_client.get(f"{PAGE}release/", {"name": NAME, "kind": "latch"}).content.decode()
    assert "Its holder may still be working" not in asked
    assert "ended" in released(admin_client, "enough")
    assert waiting.result(30)
