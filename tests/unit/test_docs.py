"""`deploy/check_docs.py` and `deploy/check_commits.py`: the documentation holds, and planted faults are found."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.checks.registry import registry

from deploy import check_commits, check_docs
from idempotency.checks.registry import address_of
from idempotency.checks.settings import check_settings, check_tenants
from tests import pages

ROOT = check_docs.ROOT


def test_links_menu_and_names_hold() -> None:
    assert check_docs.faults() == []


def test_planted_faults_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading, with `code`\n")
    page = tmp_path / "page.md"
    text = "[a](nowhere.md) [b](other.md#missing) [c](other.md#a-heading-with-code) [d](https://example.org)"
    assert list(check_docs.broken_links(page, text)) == [
        "link nowhere.md leads nowhere",
        "link other.md#missing names no heading of other.md",
    ]
    text = "`idempotency/views.py` `idempotency/nothing.py` `idempotency.views.idempotent` `payments.nothing`"
    assert list(check_docs.unknown_names(ROOT, text)) == [
        "idempotency/nothing.py does not exist",
        "payments.nothing is no module, nor a name in one",
    ]


def test_no_page_of_the_site_loads_from_elsewhere() -> None:
    """The theme fetches what draws mermaid from a CDN; without it a reader gets its source."""
    assert [page.name for page in (ROOT / "docs").rglob("*.md") if "```mermaid" in page.read_text()] == []


def test_every_python_example_is_python() -> None:
    examples = [(page.name, example) for page in check_docs.pages(ROOT) for example in pages.blocks(str(page))]
    assert len(examples) > 5
    for name, example in examples:
        ast.parse(example, filename=name)


def test_every_page_with_python_is_run_by_a_test() -> None:
    """Its reader unpacks `pages.blocks(…)`, so that an example more is noticed."""
    shown = {name for page in check_docs.pages(ROOT) if pages.blocks(name := str(page.relative_to(ROOT)))}
    tests = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py"))
    read = {*re.findall(r'"((?:docs/[\w/-]+|README)\.md)"', tests)}
    assert shown - read == set()


def test_every_test_that_guarantees_names_exists() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text()
    named = set(re.findall(r"`(tests/[\w/.]+)`", text))
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_row_of_guarantees_names_a_test_or_a_measurement() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text().partition("## Failures of a keyed call")[0]
    rows = re.findall(r"^\|? ?([A-H]\d\w*.*)$", text, re.MULTILINE)
    assert len(rows) > 50
    assert [row for row in rows if "`tests/" not in row and "`bench/" not in row] == []


@pytest.mark.parametrize(("letter", "room"), [("F", "failures"), ("M", "money")])
def test_every_numbered_row_of_guarantees_has_its_tests_and_every_test_its_row(letter: str, room: str) -> None:
    _, tables = (ROOT / "docs" / "guarantees.md").read_text().split("## Failures of a keyed call")
    rows = re.findall(rf"^({letter}\d\d) \|", tables, re.MULTILINE)
    tests = "".join(file.read_text() for file in (ROOT / "tests" / "system" / room).glob("test_*.py"))
    assert rows == [f"{letter}{number:02}" for number in range(1, len(rows) + 1)]
    assert sorted({name.upper() for name in re.findall(rf"^def test_({letter}\d\d)_", tests, re.I | re.M)}) == rows


@pytest.mark.parametrize("app", ["idempotency", "payments"])
def test_every_system_check_has_its_heading_and_every_heading_its_check(app: str) -> None:
    source = "".join(file.read_text() for file in (ROOT / app).rglob("*.py"))
    numbers = set(re.findall(rf'id="({app}\.[EWI]\d{{3}})"', source))
    (page,) = {address_of(number).partition("#")[0] for number in numbers}
    headings = check_docs.HEADING.findall((ROOT / page).read_text())[1:]  # after the page's own
    assert headings == sorted(numbers)
    assert [check_docs.slug(each) for each in headings] == [
        address_of(each).partition("#")[2] for each in headings
    ]


def test_every_check_is_registered_by_what_adds_the_address() -> None:
    ours = [
        each for each in registry.get_checks(True) if each.__module__.startswith(("idempotency.", "payments."))
    ]
    assert len(ours) > 15
    assert [each.__name__ for each in ours if not hasattr(each, "__wrapped__")] == []


def test_a_hint_ends_with_the_address(settings: Any) -> None:
    settings.IDEMPOTENCY, settings.TENANT_APPS = {"WAIT": 1}, []
    (unknown,), (shared,) = check_settings(None), check_tenants(None)
    assert unknown.hint == "See PayOnce's page docs/reference/idempotency-checks.md#idempotencye001"
    assert str(shared.hint).endswith(
        "SHARED_APPS. See PayOnce's page docs/reference/idempotency-checks.md#idempotencye009"
    )


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("redis: use one Script class", ""),
        ("tests/system: feed the chaos lab", ""),
        ('Revert "redis: use one Script class"', ""),
        ("redis: " + "a" * 66, "has 73 characters"),
        ("Use one Script class", "is not of the form"),
        ("redis: used one Script class", "begins with 'used'"),
        ("redis: using one Script class", "begins with 'using'"),
    ],
)
def test_commit_subjects(subject: str, reason: str) -> None:
    assert check_commits.fault(subject).startswith(reason)
    assert bool(reason) == bool(check_commits.fault(subject))


def test_a_message_is_checked_by_the_hook(tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text("what is the same in every statement\n\nThe body.\n")
    assert check_commits.main([str(message)]) == 1
    message.write_text("docs: name the checks\n")
    assert check_commits.main([str(message)]) == 0


def test_without_git_there_is_nothing_to_check(tmp_path: Path) -> None:
    assert check_commits.subjects(tmp_path) == []
