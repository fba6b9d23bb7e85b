"""The limits' settings come from the environment; a bad one stops the start and is named."""

import runpy
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

import shop.settings

COUNTS = (
    "API_CALLS_PER_MINUTE",
    "API_CALLS_PER_MINUTE_OVERALL",
    "PROVIDER_CALLS_MAX",
    "PROVIDER_CALLS_PER_SECOND",
)


def settings_of(monkeypatch: pytest.MonkeyPatch, **environment: str) -> dict[str, Any]:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return runpy.run_path(shop.settings.__file__)


@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "many", "1000001", "9" * 5000, "²"])
@pytest.mark.parametrize("name", COUNTS)
def test_a_count_that_is_none(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=f"^{name} must be a whole number"):
        settings_of(monkeypatch, **{name: value})


@pytest.mark.parametrize("value", ["", "-0.1", "2.1", "nan", "inf", "soon"])
def test_a_wait_that_is_none(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"^PROVIDER_WAIT_SECONDS must be"):
        settings_of(monkeypatch, PROVIDER_WAIT_SECONDS=value)


def test_what_is_set_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings_of(monkeypatch, PROVIDER_WAIT_SECONDS="0.5", **dict.fromkeys(COUNTS, "7"))
    assert found["PROVIDER_WAIT_SECONDS"] == 0.5
    assert [found[name] for name in COUNTS] == [7] * 4


def test_a_secret_may_begin_with_a_dollar_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "$HOME\\$k" + "x" * 50
    assert settings_of(monkeypatch, SECRET_KEY=secret, DEBUG="1")["SECRET_KEY"] == secret


@pytest.mark.parametrize("debug", ["0", "1"])
def test_the_public_address_is_answered(monkeypatch: pytest.MonkeyPatch, debug: str) -> None:
    changed = {"PUBLIC_URL": "https://shop.example:8443", "SECRET_KEY": "k7Qz9-Lm" * 10, "DEBUG": debug}
    assert "shop.example" in settings_of(monkeypatch, **changed)["ALLOWED_HOSTS"]
