"""A project adopts the package, leaves by the steps of the docs' page, and adopts it again."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from django.contrib import admin
from django.test import override_settings
from django.urls import path

from idempotency.checks.views import check_keyed_views
from idempotency.conf import Config
from tests.foreign.foreign import ROOT, ForeignProject, Guest, Server, replayed

COME, LEAVE = ((ROOT / "docs" / "how-to" / name).read_text() for name in ("come.md", "leave.md"))
LEFT, LEAVING = ({"DJANGO_SETTINGS_MODULE": name} for name in ("left", "leaving"))

# relations with indexes and sequences, functions, constraints, types; and Django's own notes about models
HOLDINGS = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace",
    "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
    "SELECT conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace",
    "SELECT typname FROM pg_type WHERE typnamespace = 'public'::regnamespace",
    "SELECT app_label FROM django_content_type",
    "SELECT codename FROM auth_permission",
    "SELECT app FROM django_migrations",
)

urlpatterns = [path("admin/", admin.site.urls)]


@pytest.fixture
def project(beside: Path, tmp_path: Path) -> Iterator[ForeignProject]:
    """The foreign project before it knows the package."""
    with ForeignProject(beside, tmp_path / "project", "with_redis").with_database() as project:
        project.manage("migrate", "--verbosity", "0", **LEFT)
        yield project


def holdings(project: ForeignProject) -> list[list[str]]:
    return [sorted(name for (name,) in project.rows(query)) for query in HOLDINGS]


def keyed_twice(project: ForeignProject, key: str) -> list[bool]:
    """Send a note twice; whether each answer says that it is a replay."""
    with project.serving() as server:
        guest, text = Guest(server), uuid4().hex
        answers = [guest.post(server, text, key=key) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 201]
        assert project.effects(text) == 1
    return list(map(replayed, answers))


def test_it_comes_leaves_nothing_and_comes_again(project: ForeignProject) -> None:
    bare, key = holdings(project), uuid4().hex
    project.manage("migrate", "--verbosity", "0")
    assert keyed_twice(project, key) == [False, True]
    assert holdings(project) != bare

    zero, stale = re.findall(r"`manage\.py ([^`]+)`", LEAVE)
    project.manage("check", "--fail-level", "WARNING", "--database", "default", **LEAVING)
    server = Server(project, "leaving")
    project.manage(*zero.split(), **LEAVING)  # while it serves
    assert httpx.post(f"{server.url}/notes/", json={"text": "x"}, trust_env=False).status_code == 201
    server.kill()
    project.manage(*stale.split(), "--no-input", **LEFT)
    project.manage("check", "--fail-level", "WARNING", "--database", "default", **LEFT)
    project.manage("migrate", "--check", **LEFT)
    assert holdings(project) == bare

    project.manage("migrate", "--verbosity", "0")
    assert keyed_twice(project, key) == [False, True]  # what Redis still has is of another epoch


def test_what_stands_for_another_packages_setting_is_one_of_ours() -> None:
    names = set(re.findall(r'\| [^|\n]*?`"?([A-Z_]{4,})"?[:`]', COME)) - {"ATOMIC_REQUESTS"}
    assert {"KEYED", "HEADER", "BODY_SECONDS"} <= names
    assert {name.lower() for name in names} <= set(Config.__dataclass_fields__)


@pytest.mark.urls(__name__)
def test_no_setting_of_the_page_is_refused_for_the_admin() -> None:
    values = re.findall(r'`"KEYED": (.+?)`', COME)
    assert len(values) == 3
    for value in values:
        with override_settings(IDEMPOTENCY={"KEYED": ast.literal_eval(value)}):
            assert check_keyed_views(None) == []
