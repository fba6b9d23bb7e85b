"""A mistake stops whatever starts in a foreign project, and says in a sentence what to do."""

from tests.foreign.foreign import ForeignProject


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
