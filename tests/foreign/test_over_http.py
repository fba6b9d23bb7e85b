"""A foreign project serves keyed views over real HTTP, with Redis and without."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
import redis

from tests.foreign.foreign import CHECKED, ForeignProject, Guest, Server, at_once

COPIES = 8
ROUNDS = 3
BOTH_WAYS = pytest.mark.parametrize("path", ["/notes/", "/notes/by-class/"])


def replayed(answer: httpx.Response) -> bool:
    return answer.headers.get("Idempotent-Replayed") == "true"


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


@BOTH_WAYS
def test_the_same_key_gives_the_same_bytes_and_one_row(
    project: ForeignProject, server: Server, guest: Guest, path: str
) -> None:
    key, text = uuid4().hex, uuid4().hex
    first, second = (guest.post(server, text, key=key, path=path) for _ in range(2))
    assert first.status_code == second.status_code == 201
    assert first.json()["text"] == text
    assert second.content == first.content
    assert second.headers["Content-Type"] == first.headers["Content-Type"]
    assert (replayed(first), replayed(second)) == (False, True)
    assert project.effects(text) == 1
    assert project.entries(key) == [("finished", 201)]


def test_another_key_or_another_guest_means_another_note(
    project: ForeignProject, server: Server, guest: Guest
) -> None:
    key, text = uuid4().hex, uuid4().hex
    guest.post(server, text, key=key)
    assert not replayed(guest.post(server, text, key=uuid4().hex))
    assert not replayed(Guest(server).post(server, text, key=key))
    assert project.effects(text) == 3


@BOTH_WAYS
def test_another_body_under_the_key_is_refused(
    project: ForeignProject, server: Server, guest: Guest, path: str
) -> None:
    key, text, other = uuid4().hex, uuid4().hex, uuid4().hex
    first = guest.post(server, text, key=key, path=path)
    refused = guest.post(server, other, key=key, path=path)
    assert refused.status_code == 422
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.json()["code"] == "idempotency_key_reused"
    assert project.effects(other) == 0
    assert guest.post(server, text, key=key, path=path).content == first.content


@BOTH_WAYS
def test_a_call_without_a_key_is_refused(project: ForeignProject, server: Server, guest: Guest, path: str) -> None:
    text = uuid4().hex
    refused = guest.post(server, text, key=None, path=path)
    assert refused.status_code == 400
    assert refused.json()["code"] == "idempotency_key_missing"
    assert project.effects(text) == 0


def test_eight_copies_at_once_make_one_effect(project: ForeignProject, server: Server, guest: Guest) -> None:
    for _ in range(ROUNDS):
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


def test_a_killed_server_has_done_all_of_it_or_nothing(project: ForeignProject) -> None:
    """kill -9 after the answer: the retry is a replay. kill -9 inside of the handler: the retry is the first."""
    done, key = uuid4().hex, uuid4().hex
    broken, broken_key = uuid4().hex, uuid4().hex
    with project.serving() as server:
        guest = Guest(server)
        first = guest.post(server, done, key=key)
        with project.connect() as holder, ThreadPoolExecutor(1) as pool:
            with holder.transaction():
                holder.execute(
                    "LOCK TABLE notes_note IN SHARE MODE"
                )  # reading goes on, the handler's INSERT waits
                call = pool.submit(guest.post, server, broken, key=broken_key)
                victim = project.wait_for_a_waiting_insert()
                server.kill()
                assert isinstance(call.exception(30), httpx.TransportError)
            # its connection outlived it; PostgreSQL tells us when it is gone
            holder.execute("SELECT pg_terminate_backend(%s, 30000)", [victim])
        assert project.effects(broken) == 0
        assert project.entries(broken_key) == []
    if project.settings == "with_redis":
        with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
            client.flushdb()  # what MARKER_SECONDS would bring: the killed call's marker runs out
    with project.serving() as server:
        again = guest.post(server, done, key=key)
        assert again.content == first.content
        assert replayed(again)
        retried, once_more = (guest.post(server, broken, key=broken_key) for _ in range(2))
        assert (retried.status_code, replayed(retried), replayed(once_more)) == (201, False, True)
        assert once_more.content == retried.content
    assert (project.effects(done), project.effects(broken)) == (1, 1)
