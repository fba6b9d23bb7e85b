"""A foreign project serves keyed views over real HTTP, with Redis and without."""

from functools import partial
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
import redis

from tests.foreign.foreign import CHECKED, ForeignProject, Guest, Server, at_once

COPIES = 8


def replayed(answer: httpx.Response) -> bool:
    return answer.headers.get("Idempotent-Replayed") == "true"


def test_the_tables_are_there_and_nothing_is_left_to_migrate(migrated: ForeignProject) -> None:
    applied = {name for (name,) in migrated.rows("SELECT app FROM django_migrations")}
    assert {"idempotency", "notes"} <= applied
    assert not applied & {"shop", "payments"}
    migrated.manage("migrate", "--check")
    assert "No changes detected" in migrated.manage("makemigrations", "--check", "--dry-run")


def test_its_checks_find_nothing(server: Server, project: ForeignProject) -> None:
    assert CHECKED in server.printed
    done = project.command("check", "--deploy", "--database", "default")
    assert done.returncode == 0
    assert "security.W" in done.stderr  # the project itself serves no https
    assert "idempotency" not in done.stderr


@pytest.mark.parametrize("path", ["/notes/", "/notes/by-class/"])
def test_a_key_is_one_note_of_one_guest(project: ForeignProject, server: Server, guest: Guest, path: str) -> None:
    key, text, other = uuid4().hex, uuid4().hex, uuid4().hex
    without = guest.post(server, text, key=None, path=path)
    assert (without.status_code, without.json()["code"]) == (400, "idempotency_key_missing")
    first, second = (guest.post(server, text, key=key, path=path) for _ in range(2))
    assert first.status_code == second.status_code == 201
    assert first.json()["text"] == text
    assert second.content == first.content
    assert second.headers["Content-Type"] == first.headers["Content-Type"]
    assert (replayed(first), replayed(second)) == (False, True)
    assert project.entries(key) == [("finished", 201)]
    refused = guest.post(server, other, key=key, path=path)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert (project.effects(text), project.effects(other)) == (1, 0)
    assert not replayed(guest.post(server, text, key=uuid4().hex, path=path))
    assert not replayed(Guest(server).post(server, text, key=key, path=path))
    assert project.effects(text) == 3


def test_eight_copies_at_once_make_one_effect(project: ForeignProject, server: Server, guest: Guest) -> None:
    key, text = uuid4().hex, uuid4().hex
    answers = at_once(partial(guest.post, server, text, key=key), copies=COPIES)
    done = [answer for answer in answers if answer.status_code == 201]
    waiting = [answer for answer in answers if answer.status_code == 409]
    assert len(done) + len(waiting) == COPIES
    assert [replayed(answer) for answer in done].count(False) == 1
    assert all(answer.json()["code"] == "idempotency_in_progress" for answer in waiting)
    assert all(answer.headers["Retry-After"] == "1" for answer in waiting)
    last = guest.post(server, text, key=key)
    assert replayed(last)
    assert {answer.content for answer in done} == {last.content}
    assert project.effects(text) == 1
    assert project.entries(key) == [("finished", 201)]


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
    told = httpx.get(f"{server.url}/modules/", timeout=30, trust_env=False).json()
    assert Path(told["found"]).is_relative_to(project.python.parents[1])
    assert "django.contrib.postgres" not in told["imported"]  # Django 6 would want it in INSTALLED_APPS
    imported = {name.split(".")[0] for name in told["imported"]}
    assert "idempotency" in imported
    assert not imported & {"shop", "payments", "tests", "rest_framework", "prometheus_client", "cryptography"}


@pytest.mark.parametrize("project", ["without_redis"], indirect=True)
def test_an_operator_sees_the_entry_in_the_projects_own_admin(
    project: ForeignProject, server: Server, guest: Guest
) -> None:
    key, name, password = (uuid4().hex for _ in range(3))
    guest.post(server, "a note", key=key)
    operator = ("createsuperuser", "--noinput", "--username", name, "--email", "operator@example.org")
    project.manage(*operator, DJANGO_SUPERUSER_PASSWORD=password)
    with httpx.Client(base_url=server.url, timeout=30, trust_env=False, follow_redirects=True) as browser:
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
