"""Two tenants of one project, each with a schema of its own (django-tenants)."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
import redis

from tests import pages
from tests.foreign.doors import Door, TenantDoor, User
from tests.foreign.foreign import ForeignProject
from tests.foreign.test_doors import EACH_TRIAL

NAME, PASSWORD = "first", uuid4().hex
TENANTS = ("a", "b")
USERS: tuple[User, User] = ("ann", "bob")  # of a and of b
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


def notes(project: ForeignProject, tenant: str, text: str) -> int:
    return int(project.rows(f"SELECT count(*) FROM {tenant}.notes_note WHERE text = %s", text)[0][0])


@pytest.fixture(scope="module")
def door(tenants: ForeignProject) -> Iterator[TenantDoor]:
    tenants.rows("SELECT setval('b.notes_note_id_seq', 5000)")  # so that their notes' numbers differ
    with closing(TenantDoor(tenants, name=NAME, password=PASSWORD)) as door:
        yield door


@EACH_TRIAL
def test_one_effect_though_the_call_is(trial: Callable[[Door], None], door: Door) -> None:
    trial(door)


def test_all_that_is_stored_of_a_call_is_its_tenants(
    tenants: ForeignProject, door: TenantDoor, redis_server: redis.Redis
) -> None:
    key = uuid4().hex
    for user in USERS:
        door.leave("a note", key=key, user=user)
    names = redis_server.keys("*:key:*")
    for tenant in TENANTS:
        assert len([name for name in names if f":payonce:{tenants.database}/{tenant}:".encode() in name]) in {1, 2}
        assert tenants.rows(f"SELECT count(*) FROM {tenant}.idempotency_ledgerentry WHERE key = %s", key) == [(1,)]


def test_after_a_restore_of_b_redis_answers_for_nothing_that_is_gone(
    tenants: ForeignProject, door: TenantDoor
) -> None:
    key, text = uuid4().hex, uuid4().hex
    first, _ = (door.leave(text, key=key, user=user) for user in USERS)
    # b goes back to a moment before; Redis does not
    note = "DELETE FROM b.notes_note WHERE text = %s"
    entry = "DELETE FROM b.idempotency_ledgerentry WHERE key = %s RETURNING 1"
    assert tenants.rows(f"WITH gone AS ({note}) {entry}", text, key) == [(1,)]
    assert door.leave(text, key=key, user="bob").replayed
    assert "10 s" in of_tenant(tenants, "b", "idempotency", "forget-redis")
    door.restart()
    again, fresh = (door.leave(text, key=key, user=user) for user in USERS)
    assert (again.replayed, again.value) == (True, first.value)
    assert (fresh.outcome, fresh.replayed) == ("done", False)
    assert door.leave(text, key=key, user="bob").replayed
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
