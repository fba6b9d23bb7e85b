"""Operators' acts on money get a table of their own; `django_admin_log` is the host's alone again.

What is there of them moves, and the trigger of 0011 goes. The way back is refused, by the log's foreign key, once an
operator's account has been deleted: the log cannot hold that act.
"""

from importlib import import_module
from typing import Any

import django.db.models.functions.datetime
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import migrations, models

CHUNK = 1000
CHANGE = 2  # the action flag of every line of ours, and their text is not JSON as Django's own is
ABOUT = ("payment", "notification", "anomaly", "difference")

FORMER = [
    import_module("payments.migrations.0011_audit_lines_stay").REFUSE,
    import_module("payments.migrations.0013_who_tells_the_outcome").STAYS,
]
UNGUARD = "DROP FUNCTION payments_refuse_audit() CASCADE;"
GUARD = """
CREATE TRIGGER payments_no_update BEFORE UPDATE ON payments_auditentry
    FOR EACH ROW EXECUTE FUNCTION payments_refuse();
CREATE TRIGGER payments_no_delete BEFORE DELETE ON payments_auditentry
    FOR EACH ROW EXECUTE FUNCTION payments_refuse();
"""


def move(apps: Any, schema_editor: Any) -> None:
    """From Django's log; its lock is held since the trigger went, so no line is added meanwhile."""
    using = schema_editor.connection.alias
    log = apps.get_model("admin", "LogEntry").objects.using(using)
    entries = apps.get_model("payments", "AuditEntry").objects.using(using)
    name_of = f"user__{get_user_model().USERNAME_FIELD}"
    ours = log.filter(content_type__app_label="payments", content_type__model__in=ABOUT, action_flag=CHANGE)
    ours = ours.exclude(change_message__startswith="[")
    columns = ("content_type__model", "object_id", name_of, "user_id", "change_message", "action_time")
    while found := list(ours.order_by("pk").values_list("pk", *columns)[:CHUNK]):
        entries.bulk_create(
            entries.model(
                subject=f"{model}:{number}", operator=name, operator_id=str(user), message=message, created_at=at
            )
            for _, model, number, name, user, message, at in found
        )
        log.filter(pk__in=[pk for pk, *_ in found]).delete()


def move_back(apps: Any, schema_editor: Any) -> None:
    """Into Django's log."""
    using = schema_editor.connection.alias
    log = apps.get_model("admin", "LogEntry").objects.using(using)
    types = apps.get_model("contenttypes", "ContentType").objects.using(using)
    type_ids = {kind.model: kind.pk for kind in types.filter(app_label="payments")}
    for entry in apps.get_model("payments", "AuditEntry").objects.using(using).order_by("pk").iterator():
        model, _, number = entry.subject.partition(":")
        log.create(
            user_id=entry.operator_id,
            content_type_id=type_ids[model],
            object_id=number,
            object_repr=entry.subject,
            action_flag=CHANGE,
            change_message=entry.message,
            action_time=entry.created_at,
        )


class Migration(migrations.Migration):
    dependencies = [
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("contenttypes", "0002_remove_content_type_name"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("payments", "0014_asked_at"),
    ]

    operations = [
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                (
                    "subject",
                    models.CharField(help_text="the row that it is about, as in payment:0190…", max_length=80),
                ),
                ("operator", models.CharField(help_text="their user name at that time", max_length=254)),
                (
                    "operator_id",
                    models.CharField(help_text="the primary key of their account at that time", max_length=64),
                ),
                ("message", models.TextField()),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "verbose_name_plural": "audit entries",
                "ordering": ("id",),
                "indexes": [models.Index(fields=["subject"], name="audit_by_subject")],
            },
        ),
        migrations.RunSQL([UNGUARD, GUARD], FORMER),
        migrations.RunPython(move, move_back),
    ]
