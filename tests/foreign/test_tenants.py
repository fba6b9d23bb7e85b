"""Two tenants of one project, each with a schema of its own (django-tenants), over real HTTP."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import redis

from tests import pages
from tests.foreign.doors import Door, TenantDoor
from tests.foreign.foreign import ForeignProject, Server, replayed
from tests.foreign.test_doors import EACH_TRIAL

NAME, PASSWORD = "first", uuid4().hex
TENANTS = ("a", "b")
MAKE_TENANTS = """
from customers.models import Customer, Domain
for name in ("public", "a", "b"):
    customer = Customer(schema_name=name)
    customer.save(verbosity=0)
    Domain.objects.create(domain=f"{name}.example.org", tenant=customer)
"""

KEEP_A_LEASE = """
import time
from django_tenants.utils import schema_context
from idempotency import once
from idempotency.models import LedgerEntry
from idempotency.protocol import heartbeat

heartbeat.RENEW_AFTER = 0.01

def long():
    first = LedgerEntry.objects.get(key="lease").lease_until
    deadline = time.monotonic() + 30
    while not LedgerEntry.objects.filter(key="lease", lease_until__gt=first):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return "kept"

for name in ("a", "b"):
    with schema_context(name):
        print(once("n", key="lease", lease=30).run(long))
        LedgerEntry.objects.all().delete()
"""

ASK_WHERE_THERE_IS_NO_LEDGER = """
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django_tenants.utils import schema_context
from idempotency import once

for redis in ("default", None):
    for options in ({}, {"lease": 4}):
        # its search path goes on to public, which has a ledger
        with schema_context("late"), override_settings(IDEMPOTENCY={"REDIS": redis}):
            try:
                print("ran", once("n", key="17", **options).run(str))
            except ImproperlyConfigured as refused:
                print(str(refused).split(":")[0])
"""

LEAVE_THE_TENANT = """
from django.db import connection
from django_tenants.utils import schema_context
from idempotency import once
from idempotency.models import LedgerEntry

def sign_up(error=None):
    connection.set_schema("b")
    if error:
        raise error
    return "signed up"

for options in ({}, {"lease": 30}):
    call = once("n", key=f"moved{len(options)}", **options)
    with schema_context("b"):
        call.run(lambda: "of b")
    with schema_context("a"):
        try:
            print(call.run(sign_up, ValueError()))
        except ValueError:
            print("failed at", connection.schema_name)
        print(call.run(sign_up), call.run(sign_up), connection.schema_name)
        print(*LedgerEntry.objects.filter(key__startswith="moved").values_list("state", flat=True))
        LedgerEntry.objects.all().delete()
"""

LEAVE_THE_TENANT_IN_STEPS = """
from uuid import uuid4
from django.db import connection
from django.test import RequestFactory
from django_tenants.utils import schema_context
from idempotency import Phases, RecoveryPoint, Response, once
from idempotency.models import LedgerAttempt, LedgerEntry
from idempotency.views import idempotent

leaving = Phases("tests.leaving")

@leaving.atomic("first")
def first(progress):
    connection.set_schema("b")
    return RecoveryPoint("second")

@leaving.outside("second")
def second(progress):
    connection.set_schema("b")
    return RecoveryPoint("third")

@leaving.atomic("third")
def third(progress):
    connection.set_schema("b")
    return Response(201, "of a")

@idempotent(mode=leaving)
def view(request):
    return leaving.respond(request, {})

def by_steps():
    print(view(RequestFactory().post("/", headers={"Idempotency-Key": uuid4().hex})).status_code)

def by_subject():
    print(once("n", key="1", lease=30).run(say))

def say(*, call):
    connection.set_schema("b")
    call.about("order", "of a")

def of_b(call_of_a):
    with schema_context("a"):
        call_of_a()
        print(*LedgerEntry.objects.values_list("state", "subject").get())
    print(*LedgerEntry.objects.values_list("state", "subject", "recovery_point").get())

for call_of_a in (by_steps, by_subject):
    for name in ("a", "b"):
        with schema_context(name), connection.cursor() as cursor:
            LedgerAttempt.objects.all().delete()
            LedgerEntry.objects.all().delete()
            cursor.execute("ALTER TABLE idempotency_ledgerentry ALTER id RESTART")  # both entries are number 1
    with schema_context("b"):
        once("n", key=call_of_a.__name__, lease=30).run(of_b, call_of_a)
"""

LEAVE_AN_OLD_ANSWER = """
from datetime import timedelta
from django.db.models import F
from django_tenants.utils import schema_context
from idempotency import once
from idempotency.models import LedgerEntry

days = timedelta(days=2)
for name in ("a", "b"):
    with schema_context(name):
        once("n", key="old").run(str)
        entries = LedgerEntry.objects.filter(key="old")
        entries.update(created_at=F("created_at") - days, finished_at=F("finished_at") - days)
"""


@pytest.fixture(scope="module")
def tenants(beside: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignProject]:
    """The project with its tenants, and the user with the number 1 at each of them."""
    folder = tmp_path_factory.mktemp("tenants") / "project"
    with ForeignProject(beside, folder, "tenants").with_database() as project:
        project.manage("makemigrations", "customers", "--verbosity", "0")
        project.manage("migrate_schemas", "--shared", "--verbosity", "0")
        project.manage("shell", "--verbosity", "0", "-c", MAKE_TENANTS)
        for tenant in TENANTS:
            create = ("createsuperuser", "--noinput", "--username", NAME, "--email", "first@example.org")
            of_tenant(project, tenant, *create)
            assert project.rows(f"SELECT id FROM {tenant}.auth_user") == [(1,)]
        yield project


def of_tenant(project: ForeignProject, tenant: str, command: str, *arguments: str) -> str:
    """What a management command printed, run at the tenant's schema."""
    return project.manage(
        "tenant_command", command, *arguments, f"--schema={tenant}", DJANGO_SUPERUSER_PASSWORD=PASSWORD
    )


@pytest.fixture
def servers(tenants: ForeignProject, redis_server: redis.Redis) -> Iterator[Server]:
    with tenants.serving() as server:
        yield server


class User:
    """The user with the number 1 of a tenant, logged in."""

    def __init__(self, server: Server, tenant: str) -> None:
        self._server, self._host = server, f"{tenant}.example.org"
        self._cookies = dict(self._send("GET", "/").cookies)
        form = {"username": NAME, "password": PASSWORD, "csrfmiddlewaretoken": self._cookies["csrftoken"]}
        answer = self._send("POST", "/admin/login/", data=form)
        assert answer.status_code == 302, answer.text
        self._cookies.update(answer.cookies)

    def post(self, text: str, *, key: str) -> httpx.Response:
        """Leave a note."""
        headers = {"Idempotency-Key": key, "X-CSRFToken": self._cookies["csrftoken"]}
        return self._send("POST", "/notes/", json={"text": text}, headers=headers)

    def _send(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, **how: Any
    ) -> httpx.Response:
        # cookies by hand: the address that is called is not the host that is named
        cookies = "; ".join(f"{name}={value}" for name, value in getattr(self, "_cookies", {}).items())
        sent = {"Host": self._host, "Cookie": cookies, **(headers or {})}
        return httpx.request(method, self._server.url + path, headers=sent, trust_env=False, **how)


def notes(project: ForeignProject, tenant: str, text: str) -> int:
    return int(project.rows(f"SELECT count(*) FROM {tenant}.notes_note WHERE text = %s", text)[0][0])


def test_user_1_of_b_with_the_key_of_user_1_of_a_makes_a_note_of_b(
    tenants: ForeignProject, servers: Server, redis_server: redis.Redis
) -> None:
    a, b = (User(servers, tenant) for tenant in TENANTS)
    key, text = uuid4().hex, uuid4().hex
    tenants.rows("SELECT setval('a.notes_note_id_seq', 1000)")  # so that their numbers differ
    first = {user: user.post(text, key=key) for user in (a, b)}
    assert [answer.status_code for answer in first.values()] == [201, 201]
    assert not any(map(replayed, first.values()))
    assert first[a].content != first[b].content
    assert [notes(tenants, tenant, text) for tenant in TENANTS] == [1, 1]
    for user in (a, b):
        again = user.post(text, key=key)
        assert (replayed(again), again.content) == (True, first[user].content)
    names = redis_server.keys("*:key:*")
    for tenant in TENANTS:
        assert len([name for name in names if f":payonce:{tenants.database}/{tenant}:".encode() in name]) in {1, 2}
        assert tenants.rows(f"SELECT count(*) FROM {tenant}.idempotency_ledgerentry WHERE key = %s", key) == [(1,)]


def test_after_a_restore_of_b_redis_answers_for_nothing_that_is_gone(
    tenants: ForeignProject, redis_server: redis.Redis
) -> None:
    key, text = uuid4().hex, uuid4().hex
    with tenants.serving() as server:
        users = {tenant: User(server, tenant) for tenant in TENANTS}
        first = {tenant: user.post(text, key=key) for tenant, user in users.items()}
        # b goes back to a moment before; Redis does not
        note = "DELETE FROM b.notes_note WHERE text = %s"
        entry = "DELETE FROM b.idempotency_ledgerentry WHERE key = %s RETURNING 1"
        assert tenants.rows(f"WITH gone AS ({note}) {entry}", text, key) == [(1,)]
        assert replayed(users["b"].post(text, key=key))
    assert "10 s" in of_tenant(tenants, "b", "idempotency", "forget-redis")
    with tenants.serving() as server:
        users = {tenant: User(server, tenant) for tenant in TENANTS}
        again = {tenant: user.post(text, key=key) for tenant, user in users.items()}
        assert {tenant: replayed(answer) for tenant, answer in again.items()} == {"a": True, "b": False}
        assert again["a"].content == first["a"].content
        assert again["b"].status_code == 201
        assert replayed(users["b"].post(text, key=key))
    assert [notes(tenants, tenant, text) for tenant in TENANTS] == [1, 1]


def test_a_lease_is_renewed_at_its_tenant(tenants: ForeignProject) -> None:
    assert tenants.manage("shell", "--verbosity", "0", "-c", KEEP_A_LEASE).split() == ["kept", "kept"]


def test_a_tenant_without_a_ledger_does_not_use_the_public_one(tenants: ForeignProject) -> None:
    said = tenants.manage("shell", "--verbosity", "0", "-c", ASK_WHERE_THERE_IS_NO_LEDGER)
    assert said.splitlines() == ["The schema 'late' has no ledger of its own"] * 4


def test_the_entry_is_the_callers_though_the_handler_leaves_their_tenant(tenants: ForeignProject) -> None:
    """As a view does that makes a tenant and goes on there."""
    said = tenants.manage("shell", "--verbosity", "0", "-c", LEAVE_THE_TENANT)
    assert said.splitlines() == ["failed at a", "signed up signed up a", "finished"] * 2


def test_a_step_that_leaves_the_tenant_ends_no_call_of_the_other(tenants: ForeignProject) -> None:
    """Entries of two tenants may have the same number."""
    said = tenants.manage("shell", "--verbosity", "0", "-c", LEAVE_THE_TENANT_IN_STEPS)
    by_steps, by_subject = ["201", "finished ", "running  "], ["None", "finished order:of a", "running  "]
    assert said.splitlines() == by_steps + by_subject


def test_the_pages_command_reaps_at_each_tenant(tenants: ForeignProject) -> None:
    tenants.manage("shell", "--verbosity", "0", "-c", LEAVE_AN_OLD_ANSWER)
    page = pages.text_of("docs/how-to/share-redis-between-tenants.md")
    (command,) = re.findall(r"`manage\.py (all_tenants_command [^`]+)`", page)
    tenants.manage(*command.split())
    purged = "SELECT purged_at IS NOT NULL FROM {}.idempotency_ledgerentry WHERE key = 'old'"
    assert [tenants.rows(purged.format(tenant)) for tenant in TENANTS] == [[(True,)]] * 2


def test_each_tenant_has_an_epoch_of_its_own(tenants: ForeignProject) -> None:
    values = {
        tenants.rows(f"SELECT value FROM {schema}.idempotency_ledgerepoch")[0][0]
        for schema in ("public", *TENANTS)
    }
    assert len(values) == 3


@pytest.fixture(scope="module")
def door(tenants: ForeignProject) -> Iterator[Door]:
    tenants.rows("SELECT setval('b.notes_note_id_seq', 5000)")  # so that their notes' numbers differ
    with closing(TenantDoor(tenants)) as door:
        yield door


@EACH_TRIAL
def test_one_effect_though_the_call_is(trial: Callable[[Door], None], door: Door) -> None:
    trial(door)
