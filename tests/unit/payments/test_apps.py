"""The app `payments` beside django-payments, whose top-level package has the same name."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path

import payments
from tests.payments_settings import changed


def test_beside_django_payments_the_start_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "django_payments-4.1.0.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text("Metadata-Version: 2.1\nName: django-payments\nVersion: 4.1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImproperlyConfigured) as refused:
        apps.get_app_config("payments").ready()
    message = str(refused.value)
    assert f"came from {Path(payments.__file__).parent}" in message
    assert f"django-payments 4.1.0 has installed another one in {tmp_path / 'payments'}" in message
    assert "Uninstall both" in message


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_a_server_that_runs_no_checks_answers_nothing_with_useless_settings(client: type[Any]) -> None:
    apps.get_app_config("payments").ready()  # as a server does
    wrong = [
        (changed(ORDER="no.such.Orders"), r"PAYMENTS\['ORDER'\] = 'no.such.Orders' cannot be imported"),
        (changed(PROVIDER={}), r"PAYMENTS\['PROVIDER'\] is unknown"),
        (changed(PROVIDERS={"stripe": {"API_URL": "no address"}}), "STRIPE_API_URL must be an absolute"),
    ]
    for raw, why in wrong:
        for _ in range(2):
            with override_settings(PAYMENTS=raw), pytest.raises(ImproperlyConfigured, match=why):
                asked(client)
    with override_settings(PAYMENTS=wrong[0][0], SILENCED_SYSTEM_CHECKS=["payments.E001"]):
        asked(client)
    with override_settings(
        PAYMENTS=wrong[1][0]
    ):  # the first request that was answered was the last one that asked
        asked(client)


@override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[])
def asked(client: type[Any]) -> None:
    get = client(raise_request_exception=False).get
    answer = async_to_sync(get)("/") if iscoroutinefunction(get) else get("/")
    assert answer.status_code == 200


urlpatterns = [path("", lambda request: HttpResponse())]


@pytest.mark.parametrize(("app", "installed"), [("idempotency", []), ("payments", ["idempotency"])])
def test_a_project_that_left_the_app_out_is_given_its_name(app: str, installed: list[str]) -> None:
    start = f"""if True:
        import django
        from django.conf import settings
        settings.configure(INSTALLED_APPS={["django.contrib.contenttypes", "django.contrib.auth", *installed]})
        django.setup()
        import {app}.models"""
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=False)
    assert f"Add '{app}' to INSTALLED_APPS, then run `manage.py migrate {app}`." in done.stderr
