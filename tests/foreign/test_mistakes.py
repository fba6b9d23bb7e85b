"""`manage.py check` in a foreign project names each mistake by its id and says in a sentence what to do."""

import re

import pytest

from tests.foreign.foreign import ForeignProject

CONSTRAINT = "ledger_one_entry_per_scope_and_key"

MISTAKES = [
    ("no such key", "E001", "IDEMPOTENCY['WAIT'] is unknown; did you mean 'WAIT_SECONDS'?"),
    ("no middleware", "E002", "MIDDLEWARE lacks 'idempotency.middleware.IdempotencyMiddleware'; add it"),
    (
        "middleware first",
        "E003 W001",
        "must stand after 'django.contrib.auth.middleware.AuthenticationMiddleware'",
    ),
    ("cache in memory", "E004", "the marker needs django_redis. Set IDEMPOTENCY['REDIS'] to a URL"),
    ("another client of Redis", "E004", "CACHES['default'] is 'django.core.cache.backends.redis.RedisCache'"),
    ("no cache under the alias", "E001", "IDEMPOTENCY['REDIS'] is 'default'. Write a URL such as 'redis:"),
    ("atomic requests", "E005", "notes.views.Leave has @idempotent methods, but ATOMIC_REQUESTS wraps the view"),
    ("one ledger for all tenants", "E009", "TENANT_APPS lacks 'idempotency', so all tenants share one ledger"),
    ("another database", "E006", "IDEMPOTENCY['DATABASE'] is 'default', and DATABASES has sqlite there"),
]


def told(printed: str) -> dict[str, str]:
    """The app's own messages: id → text."""
    return dict(re.findall(r"^[^\n]*\(idempotency\.([EW]\d{3})\) (.*)$", printed, re.MULTILINE))


def check(project: ForeignProject, mistake: str) -> tuple[int, dict[str, str], str]:
    """Exit status of `manage.py check`, the app's messages, everything it printed."""
    done = project.command("check", "--database", "default", MISTAKE=mistake)
    printed = done.stdout + done.stderr
    assert "Traceback" not in printed, printed
    return done.returncode, told(printed), printed


@pytest.mark.parametrize(("mistake", "numbers", "sentence"), MISTAKES, ids=[mistake for mistake, *_ in MISTAKES])
def test_each_mistake_has_its_id_and_its_sentence(
    mistaken: ForeignProject, mistake: str, numbers: str, sentence: str
) -> None:
    status, messages, printed = check(mistaken, mistake)
    assert status != 0
    assert messages.keys() == set(numbers.split()), printed
    assert sentence in printed


@pytest.mark.parametrize("cache", ["", ", and Django's own cache of it"])
def test_a_project_that_names_no_redis_works_and_is_warned(mistaken: ForeignProject, cache: str) -> None:
    status, messages, printed = check(mistaken, f"no Redis named{cache}")
    assert (status, messages.keys()) == (0, {"W008"}), printed
    assert "keyed calls work on the ledger alone" in messages["W008"]


def test_a_cache_whose_package_is_missing_stops_the_start_and_names_its_extra(mistaken: ForeignProject) -> None:
    done = mistaken.command("check", MISTAKE="no django-redis")
    assert done.returncode != 0
    sentence = "CACHES['default'] needs django-redis: pip install 'payonce[django-redis]'"
    assert done.stderr.splitlines()[-1].endswith(sentence), done.stderr


def test_a_keyed_method_that_leaves_atomic_requests_is_no_mistake(mistaken: ForeignProject) -> None:
    """The class is keyed at `dispatch`, and its view leaves the transaction; no mixin authorises inside."""
    views = mistaken.folder / "notes" / "views.py"
    before = views.read_text()
    views.write_text(before.replace('name="post"', 'name="dispatch"'))
    try:
        status, messages, printed = check(mistaken, "atomic requests")
    finally:
        views.write_text(before)
    assert (status, messages) == (0, {}), printed


def test_an_index_that_postgresql_does_not_trust_is_an_error(mistaken: ForeignProject) -> None:
    """What a failed CREATE INDEX CONCURRENTLY or REINDEX leaves behind."""
    mark = "UPDATE pg_index SET indisvalid = %s WHERE indexrelid = %s::regclass"
    with mistaken.connect() as connection:
        connection.execute(mark, [False, CONSTRAINT])
        try:
            status, messages, printed = check(mistaken, "none")
        finally:
            connection.execute(mark, [True, CONSTRAINT])
    assert status != 0
    assert messages.keys() == {"E007"}, printed


def test_a_mistake_stops_the_server_and_migrate_as_well(mistaken: ForeignProject) -> None:
    server = ["runserver", "--noreload", "127.0.0.1:0"]
    for command in (server, [*server, "--skip-checks"], ["migrate", "--plan"]):  # the second one as gunicorn
        done = mistaken.command(*command, MISTAKE="cache in memory")
        assert done.returncode != 0
        assert "idempotency.E004" in done.stderr
