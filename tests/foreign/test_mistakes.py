"""`manage.py check` in a foreign project names a mistake by its id and says in a sentence what to do."""

import re

import pytest

from tests.foreign.foreign import ForeignProject

MISTAKES = [
    (
        "middleware first",
        "E003 W001",
        "must stand after 'django.contrib.auth.middleware.AuthenticationMiddleware'",
    ),
    ("one ledger for all tenants", "E009", "TENANT_APPS lacks 'idempotency', so all tenants share one ledger"),
]


@pytest.mark.parametrize(("mistake", "numbers", "sentence"), MISTAKES, ids=[mistake for mistake, *_ in MISTAKES])
def test_each_mistake_has_its_id_and_its_sentence(
    mistaken: ForeignProject, mistake: str, numbers: str, sentence: str
) -> None:
    done = mistaken.command("check", "--database", "default", MISTAKE=mistake)
    assert done.returncode != 0
    assert set(re.findall(r"\(idempotency\.([EW]\d{3})\)", done.stderr)) == set(numbers.split()), done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cache_whose_package_is_missing_stops_the_start_and_names_its_extra(mistaken: ForeignProject) -> None:
    done = mistaken.command("check", MISTAKE="no django-redis")
    assert done.returncode != 0
    sentence = "CACHES['default'] needs django-redis: pip install 'payonce[django-redis]'"
    assert done.stderr.splitlines()[-1].endswith(sentence), done.stderr


def test_a_mistake_stops_the_server_and_migrate_as_well(mistaken: ForeignProject) -> None:
    server = ["runserver", "--noreload", "127.0.0.1:0"]
    for command in (server, [*server, "--skip-checks"], ["migrate", "--plan"]):  # the second one as gunicorn
        done = mistaken.command(*command, MISTAKE="cache in memory")
        assert done.returncode != 0
        assert "idempotency.E004" in done.stderr
