"""A project that has left out a step of the set-up gets a sentence with the step."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection
from django.test import Client

from idempotency import once
from idempotency.checks.settings import MIDDLEWARE
from tests.integration.idempotency.conftest import Caller
from tests.integration.idempotency.urls import PLAN

KEY = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}


async def _nothing() -> None: ...


@pytest.mark.django_db(transaction=True)
@pytest.mark.urls("tests.integration.idempotency.urls")
@pytest.mark.parametrize("given", [{}, {"REDIS": None}], ids=["redis", "no redis"])
def test_without_its_tables_it_says_what_to_run(settings: Any, given: dict[str, Any]) -> None:
    settings.IDEMPOTENCY = given
    calls: list[Callable[[], Any]] = [
        lambda: Client().post("/plain", headers=KEY),
        lambda: Client().post("/async", headers=KEY),
        lambda: Client().post("/open/nobody", {}, content_type="application/json", headers=KEY),
        lambda: once("n", key=1).run(lambda: None),
        lambda: async_to_sync(once("n", key=1).arun)(_nothing),
        lambda: call_command("idempotency", "reap"),
    ]
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE idempotency_ledgerentry RENAME TO elsewhere")
        try:
            for call in calls:
                with pytest.raises(
                    (ImproperlyConfigured, CommandError), match=r"run `manage\.py migrate idempotency`"
                ):
                    call()
        finally:
            cursor.execute("ALTER TABLE elsewhere RENAME TO idempotency_ledgerentry")


@pytest.mark.urls("tests.integration.idempotency.urls")
@pytest.mark.parametrize("path", ["/plain", "/async", "/open/nobody"])
def test_without_the_middleware_a_view_is_keyed_or_fails(
    path: str, caller: Caller, effects: Callable[[], int], settings: Any
) -> None:
    settings.MIDDLEWARE = settings.MIDDLEWARE[: settings.MIDDLEWARE.index(MIDDLEWARE)]
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "KEYED": "marked"}  # or the first request is refused (E002)
    settings.REST_FRAMEWORK = {"EXCEPTION_HANDLER": "rest_framework.views.exception_handler"}
    first, again, unkeyed = (caller.post(path, key=key) for key in (*[KEY["Idempotency-Key"]] * 2, None))
    assert (again.content, again["Idempotent-Replayed"], effects()) == (first.content, "true", 1)
    assert unkeyed.status_code == (500 if path.startswith("/open") else 400)


@pytest.mark.urls("tests.integration.idempotency.urls")
def test_a_missing_table_of_the_project_is_its_own_error(caller: Caller) -> None:
    def fails() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM elsewhere_entirely")

    PLAN["during"] = fails
    caller.client.raise_request_exception = True
    with pytest.raises(ProgrammingError, match="elsewhere_entirely"):
        caller.post("/held")


def test_without_the_app_it_says_what_to_add() -> None:
    modules = ["idempotency.views", "idempotency.drf", "idempotency.functions"]
    code = f"""
import importlib
import django
from django.conf import settings
settings.configure()
django.setup()
for name in {modules}:
    try:
        importlib.import_module(name)
    except Exception as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110, check=True)
    assert done.stdout.count("Add 'idempotency' to INSTALLED_APPS") == len(modules), done.stdout
