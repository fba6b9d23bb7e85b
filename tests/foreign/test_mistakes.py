"""`manage.py check` in a foreign project names each mistake by its id and says in a sentence what to do."""

import re

import pytest

from tests.foreign.foreign import DOCS, ForeignProject

TABLE = "idempotency_ledgerentry"
CONSTRAINT = "ledger_one_entry_per_scope_and_key"
INVALID = f"UPDATE pg_index SET indisvalid = %s WHERE indexrelid = '{CONSTRAINT}'::regclass"
TOGETHER = ("middleware first", "atomic requests", "one ledger for all tenants")


def check(project: ForeignProject, *mistakes: str) -> tuple[int, dict[str, str], str]:
    """Exit status of `manage.py check`, the app's messages by their ids, everything it printed."""
    done = project.command("check", "--database", "default", MISTAKES=",".join(mistakes))
    printed = done.stdout + done.stderr
    assert "Traceback" not in printed, printed
    return done.returncode, dict(re.findall(r"\(idempotency\.([EW]\d{3})\) (.*)$", printed, re.MULTILINE)), printed


@pytest.mark.parametrize(
    ("mistake", "number", "sentence"),
    [
        ("no such key", "E001", "IDEMPOTENCY['WAIT'] is unknown; did you mean 'WAIT_SECONDS'?"),
        ("another client of Redis", "E004", "CACHES['default'] is 'django.core.cache.backends.redis.RedisCache'"),
        ("no cache under the alias", "E004", "CACHES['default'] is 'missing'; the marker needs django_redis."),
    ],
)
def test_a_mistake_has_its_id_and_its_sentence(
    mistaken: ForeignProject, mistake: str, number: str, sentence: str
) -> None:
    status, messages, printed = check(mistaken, mistake)
    assert (status != 0, [*messages]) == (True, [number]), printed
    assert sentence in messages[number]


def test_mistakes_that_are_made_together_are_all_named(mistaken: ForeignProject) -> None:
    status, messages, printed = check(mistaken, *TOGETHER)
    assert (status != 0, messages.keys()) == (True, {"E003", "E005", "E009", "W001"}), printed
    assert "must stand after 'django.contrib.auth.middleware.AuthenticationMiddleware'" in printed
    assert "notes.views.Leave has @idempotent methods, but ATOMIC_REQUESTS wraps the view" in messages["E005"]
    assert "TENANT_APPS lacks 'idempotency', so all tenants share one ledger" in messages["E009"]


def test_a_cache_whose_package_is_missing_stops_the_start_and_names_its_extra(mistaken: ForeignProject) -> None:
    done = mistaken.command("check", MISTAKES="no django-redis")
    assert done.returncode != 0
    sentence = "CACHES['default'] needs django-redis: pip install 'payonce[django-redis]'"
    assert done.stderr.splitlines()[-1].endswith(sentence), done.stderr


def test_a_constraint_that_is_lost_or_not_trusted_is_an_error(mistaken: ForeignProject) -> None:
    """The second is what a failed CREATE INDEX CONCURRENTLY or REINDEX leaves behind."""
    assert check(mistaken)[:2] == (0, {})
    with mistaken.connect() as connection:
        connection.execute(f"ALTER TABLE {TABLE} DROP CONSTRAINT {CONSTRAINT}")
        lost = check(mistaken)
        connection.execute(f"ALTER TABLE {TABLE} ADD CONSTRAINT {CONSTRAINT} UNIQUE (key, scope)")
        connection.execute(INVALID, [False])
        untrusted = check(mistaken)
        connection.execute(INVALID, [True])
    for status, messages, printed in (lost, untrusted):
        assert (status != 0, [*messages]) == (True, ["E007"]), printed
    status, messages, printed = lost
    assert "nothing would stop a second execution" in messages["E007"]
    assert f"HINT: Restore it: ALTER TABLE {TABLE} ADD CONSTRAINT {CONSTRAINT} UNIQUE (key, scope)." in printed
    assert f"See PayOnce's page {DOCS}/reference/idempotency-checks.md#idempotencye007" in printed


def test_a_mistake_stops_the_server(mistaken: ForeignProject) -> None:
    done = mistaken.command("runserver", "--noreload", "127.0.0.1:0", MISTAKES="cache in memory")
    assert done.returncode != 0
    assert "the marker needs django_redis. Set IDEMPOTENCY['REDIS'] to a URL" in done.stderr
