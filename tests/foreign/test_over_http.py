"""A foreign project serves keyed views over real HTTP, with Redis and without."""

from pathlib import Path
from uuid import uuid4

import httpx
import pytest
import redis

from tests.foreign.foreign import CHECKED, ForeignProject, Guest, Server, replayed


def test_the_tables_are_there_and_nothing_is_left_to_migrate(migrated: ForeignProject) -> None:
    applied = {name for (name,) in migrated.rows("SELECT app FROM django_migrations")}
    assert {"idempotency", "notes"} <= applied
    assert not applied & {"shop", "payments"}
    migrated.manage("migrate", "--check")
    assert "No changes detected" in migrated.manage("makemigrations", "--check", "--dry-run")


def test_check_finds_nothing(server: Server) -> None:
    assert CHECKED in server.printed


def test_check_for_deployment_finds_nothing_of_the_app(migrated: ForeignProject) -> None:
    done = migrated.command("check", "--deploy", "--database", "default")
    assert done.returncode == 0
    assert "security.W" in done.stderr  # the project itself serves no https
    assert "idempotency" not in done.stderr


def test_redis_is_used_where_the_settings_name_it_and_only_there(
    project: ForeignProject, server: Server, guest: Guest, redis_server: redis.Redis
) -> None:
    guest.post(server, "a note", key=uuid4().hex)
    markers = len(list(redis_server.scan_iter("*:key:*")))
    assert markers == (1 if project.settings == "with_redis" else 0)
    assert ("REDIS_URL" in project.environment) == (project.settings == "with_redis")


def test_neither_the_shop_nor_its_payments_are_imported(
    project: ForeignProject, server: Server, guest: Guest
) -> None:
    """After keyed calls and replays, so that whatever is imported late has been."""
    for _ in range(2):
        guest.post(server, "a note", key="the-same-for-this-guest")
    said = httpx.get(f"{server.url}/modules/", trust_env=False).json()
    assert Path(said["found"]).is_relative_to(project.python.parents[1])
    assert "django.contrib.postgres" not in said["imported"]  # Django 6 would want it in INSTALLED_APPS
    imported = {name.split(".")[0] for name in said["imported"]}
    assert "idempotency" in imported
    assert not imported & {"shop", "payments", "tests", "rest_framework", "prometheus_client", "cryptography"}


@pytest.mark.parametrize("project", ["without_redis"], indirect=True)
def test_an_operator_sees_the_entry(project: ForeignProject, server: Server, guest: Guest) -> None:
    """In the terminal, and in the foreign project's own admin."""
    key = uuid4().hex
    note = guest.post(server, "a note", key=key).json()["id"]
    shown = project.manage("idempotency", "show", f"note:{note}")
    assert f"key {key}" in shown
    assert "atomic, finished, fence 1, answered 201" in shown
    assert "answer 201 stored" in shown
    assert "0 bodies" in project.manage("idempotency", "reap")

    name, password = uuid4().hex, uuid4().hex
    project.manage(
        *("createsuperuser", "--noinput", "--username", name, "--email", "operator@example.org"),
        DJANGO_SUPERUSER_PASSWORD=password,
    )
    with httpx.Client(base_url=server.url, trust_env=False, follow_redirects=True) as browser:
        browser.get("/admin/login/")
        form = {
            "username": name,
            "password": password,
            "csrfmiddlewaretoken": browser.cookies["csrftoken"],
            "next": f"/admin/idempotency/ledgerentry/?q={key}",
        }
        listed = browser.post("/admin/login/", data=form)
        assert listed.status_code == 200
        assert key in listed.text
        assert browser.get("/admin/idempotency/ledgerentry/statistics/").status_code == 200


@pytest.mark.parametrize("project", ["without_redis"], indirect=True)
def test_a_project_adds_app_and_middleware_and_no_setting(project: ForeignProject) -> None:
    server, key = Server(project, "two_lines"), uuid4().hex
    try:
        guest, text = Guest(server), uuid4().hex
        first, second = (guest.post(server, text, key=key) for _ in range(2))
        assert (second.content, replayed(first), replayed(second)) == (first.content, False, True)
        assert project.effects(text) == 1
        assert "(idempotency.W008) The settings name no Redis" in server.complaints()
    finally:
        server.kill()
