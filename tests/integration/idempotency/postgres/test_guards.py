"""A guard is a constraint of its model, which migrations make and take away."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, connection, models, transaction
from django.test.utils import isolate_apps

from idempotency.postgres.guards import Guard, changed, no_step, shrinks, unversioned
from idempotency.postgres.statements import broken_constraint

pytestmark = pytest.mark.django_db(transaction=True)

STEPS = {"new": ["old"], "old": []}


def guards() -> list[Guard]:
    return [
        Guard(name="thing_step", on="UPDATE", when=no_step(STEPS), message="no step of a thing"),
        Guard(name="thing_owner", on="UPDATE", when=changed("owner"), message="it has an owner", raises="owned"),
        Guard(name="thing_total", on="UPDATE", when=shrinks("total"), message="it only grows"),
        Guard(name="thing_version", on="UPDATE", when=unversioned("total"), message="a new version"),
        Guard(name="thing_stays", on="DELETE", message="it stays", error="restrict_violation"),
        Guard(
            name="thing_alone",
            on="INSERT",
            when="(SELECT count(*) FROM test_thing WHERE status = 'new') > 1",
            message="one new thing at a time",
            at_commit=True,
        ),
    ]


@pytest.fixture
def thing() -> Iterator[Any]:
    """A model that its guards are made with; its table has one row."""
    with isolate_apps("idempotency"):

        class Thing(models.Model):
            status = models.CharField(max_length=8, default="new")
            owner = models.IntegerField(default=1)
            total = models.IntegerField(default=5)
            version = models.IntegerField(default=1)

            class Meta:
                app_label = "idempotency"
                db_table = "test_thing"
                constraints = guards()

    with connection.schema_editor() as editor:
        editor.create_model(Thing)
    Thing.objects.create()
    yield Thing
    with connection.schema_editor() as editor:
        for guard in Thing._meta.constraints:
            editor.remove_constraint(Thing, guard)
        editor.delete_model(Thing)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_proc WHERE proname LIKE 'thing_%'")
        assert cursor.fetchone() == (0,)


def refused(change: Callable[[], object]) -> str | None:
    """Return the name under which `change` is refused."""
    with pytest.raises(IntegrityError, match="test_thing 1: ") as error:
        change()
    return broken_constraint(error.value)


def test_a_change_is_refused_by_name_or_passes(thing: Any) -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"status": "gone"}, "thing_step"),
        ({"owner": 2}, "owned"),
        ({"total": 4, "version": 2}, "thing_total"),
        ({"total": 6}, "thing_version"),
        ({"version": 0}, "thing_version"),
    ]
    for change, constraint in changes:
        assert refused(partial(thing.objects.update, **change)) == constraint
    assert refused(thing.objects.get().delete) == "thing_stays"
    assert thing.objects.update(status="old", total=6, version=2) == 1
    assert thing.objects.update(status="old") == 1


def test_a_guard_of_the_commit_lets_a_transaction_put_it_right(thing: Any) -> None:
    with transaction.atomic():
        second = thing.objects.create()
        thing.objects.filter(pk=second.pk).update(status="old")
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        thing.objects.create()
    assert broken_constraint(refused.value) == "thing_alone"


def test_a_new_step_is_another_guard() -> None:
    (one, *_), (again, *_) = guards(), guards()
    more = Guard(name=one.name, on=one.on, when=no_step({**STEPS, "old": ["new"]}), message=one.message)
    assert one == again == one.clone()
    assert one != more
