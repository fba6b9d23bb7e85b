"""The app `payments` beside django-payments, whose top-level package has the same name."""

import subprocess
import sys
from pathlib import Path

import pytest
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

import payments


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
