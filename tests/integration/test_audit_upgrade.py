"""Operators' acts move from Django's admin log, which held them with the host's own lines, to a table of their own."""

from collections.abc import Iterator

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import IntegrityError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor

from payments.models import AuditEntry
from tests.integration.test_upgrades import LONG_AGO, fresh_database

pytestmark = pytest.mark.django_db(transaction=True)

BEFORE = ("payments", "0013_who_tells_the_outcome")
ACT = "Asked the provider. Reason: late. Result: it was paid."


@pytest.fixture
def upgraded() -> Iterator[BaseDatabaseWrapper]:
    """Three acts of two operators, beside what else is in the host's log, before and after 0015."""
    with fresh_database() as wrapper:
        call_command("migrate", *BEFORE, database="former", verbosity=0)
        call_command("migrate", "admin", database="former", verbosity=0)
        apps = MigrationExecutor(wrapper).loader.project_state([BEFORE]).apps
        users, types, log = (
            apps.get_model(app, model).objects.using("former")
            for app, model in (("auth", "User"), ("contenttypes", "ContentType"), ("admin", "LogEntry"))
        )
        ann, bob = users.create(username="ann"), users.create(username="bob")
        kinds = {
            model: types.get_or_create(app_label=app, model=model)[0]
            for app, model in (("payments", "payment"), ("payments", "anomaly"), ("auth", "user"))
        }
        for user, kind, number, message in (
            (ann, kinds["payment"], "0190", ACT),
            (bob, kinds["anomaly"], "7", "Resolved. Reason: x. Result: settled."),
            (ann, kinds["payment"], "0190", ACT),
            (ann, kinds["user"], "2", "Changed by hand."),
            (ann, kinds["payment"], "0190", '[{"changed": {"fields": ["A field of the host\'s"]}}]'),
            (bob, None, "9", "About a model that is gone."),
        ):
            log.create(
                user=user, content_type=kind, object_id=number, action_flag=2, change_message=message,
                action_time=LONG_AGO, object_repr="x",
            )  # fmt: skip
        call_command("migrate", database="former", verbosity=0)
        yield wrapper


def test_ours_move_and_the_hosts_stay(upgraded: BaseDatabaseWrapper) -> None:
    columns = ("subject", "operator", "message", "created_at")
    assert list(AuditEntry.objects.using("former").values_list(*columns)) == [
        ("payment:0190", "ann", ACT, LONG_AGO),
        ("anomaly:7", "bob", "Resolved. Reason: x. Result: settled.", LONG_AGO),
        ("payment:0190", "ann", ACT, LONG_AGO),
    ]
    left = LogEntry.objects.using("former").order_by("pk").values_list("user__username", "object_id")
    assert list(left) == [("ann", "2"), ("ann", "0190"), ("bob", "9")]
    with upgraded.cursor() as cursor:
        for change in ("DELETE FROM payments_auditentry", "UPDATE payments_auditentry SET message = ''"):
            with pytest.raises(IntegrityError, match="what is known about money stays"):
                cursor.execute(change)
    User.objects.using("former").get(username="ann").delete()
    assert AuditEntry.objects.using("former").filter(operator="ann").count() == 2


def test_the_way_back_keeps_them_or_is_refused(upgraded: BaseDatabaseWrapper) -> None:
    MigrationExecutor(upgraded).migrate([BEFORE])
    log = LogEntry.objects.using("former")
    assert log.filter(change_message=ACT, user__username="ann", action_time=LONG_AGO).count() == 2
    with upgraded.cursor() as cursor, pytest.raises(IntegrityError, match="audit lines stay"):
        cursor.execute("DELETE FROM django_admin_log")
    call_command("migrate", "payments", database="former", verbosity=0)
    assert (AuditEntry.objects.using("former").count(), log.count()) == (3, 3)
    User.objects.using("former").get(username="bob").delete()
    with pytest.raises(IntegrityError, match="django_admin_log"):
        MigrationExecutor(upgraded).migrate([BEFORE])
    assert AuditEntry.objects.using("former").count() == 3
