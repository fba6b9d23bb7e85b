"""The limits' settings come from the environment; a bad one stops the start and is named."""

import re
import runpy
from typing import Any

import django
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


def test_what_is_set_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings_of(monkeypatch, PROVIDER_WAIT_SECONDS="0.5", **dict.fromkeys(COUNTS, "7"))
    assert found["PAYMENTS"]["LIMITS"] == {"CALLS": 7, "CALLS_PER_SECOND": 7, "WAIT_SECONDS": 0.5}
    assert [found[name] for name in COUNTS if name.startswith("API")] == [7] * 2


def test_a_secret_may_begin_with_a_dollar_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "$HOME\\$k" + "x" * 50
    assert settings_of(monkeypatch, SECRET_KEY=secret, DEBUG="1")["SECRET_KEY"] == secret


@pytest.mark.parametrize("debug", ["0", "1"])
def test_the_public_address_is_answered(monkeypatch: pytest.MonkeyPatch, debug: str) -> None:
    changed = {"PUBLIC_URL": "https://shop.example:8443", "SECRET_KEY": "k7Qz9-Lm" * 10, "DEBUG": debug}
    assert "shop.example" in settings_of(monkeypatch, **changed)["ALLOWED_HOSTS"]
    for others in ("", "10.0.0.7,other.example"):  # a webhook is refused otherwise, and nobody learns of it
        allowed = settings_of(monkeypatch, **changed, ALLOWED_HOSTS=others)["ALLOWED_HOSTS"]
        assert {"shop.example", *filter(None, others.split(","))} <= set(allowed)


def test_a_public_address_of_ipv6_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[fd00::7]" in settings_of(monkeypatch, PUBLIC_URL="http://[fd00::7]:8000")["ALLOWED_HOSTS"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("DATABASE_URL", f"postgresql://u:secret{special}word@h/n") for special in "/?"),
        *(("DATABASE_URL", f"postgresql://u:1234{special}word@h/n") for special in "/?"),
        ("DATABASE_URL", "postgresql://u:secret@h:port/n"),
        ("REDIS_URL", "redis://:secret/word@h:6379/0"),
        ("SECRET_KEY_FALLBACKS", f"{'secret' * 10},{shop.settings.DEMO_SECRET_KEY}"),
        ("LOG_LEVEL", "loud"),
        *(("PUBLIC_URL", url) for url in ("http://[::1", "https://h:99999", "https://h:x", "ftp://h")),
        *(("PUBLIC_URL", f"https://{rest}") for rest in ("h?a=b", "h#a", "a b", "u:secret@h", "\u4f8b.example")),
        ("SANDBOX_URL", "sandbox"),
        *(
            ("ALLOWED_HOSTS", f"a.example,{wrong}")
            for wrong in ("http://b", "b:8000", "b/x", "b c", "\u4f8b.example")
        ),
        *((name, wrong) for name in ("DEBUG", "HSTS_SUBDOMAINS") for wrong in ("maybe", "2")),
        *(("SECRET_KEY", wrong) for wrong in (" " * 60, "k" * 60)),
        *(("DATABASE_URL", f"postgresql://{rest}") for rest in ("", "/", "u:secret@h")),
        *(("REDIS_URL", url) for url in ("redis://:secret@h/name", "redis://h/-1", "unix://")),
        *(("IDEMPOTENCY_BODY_KEYS", wrong) for wrong in ("secret", "a:secret", f"k1::{'A' * 42}=")),
        *(("WEBHOOKS", wrong) for wrong in ("secret", "[]")),
        ("PUBLIC_URL", "https://my_shop.example"),
        ("EMAIL_FROM", "noreply"),
        *(("EMAIL_URL", url) for url in ("mail.example", "http://mail.example", "smtp://", "smtp://[h")),
        ("EMAIL_URL", "smtp://a:secret@h:x"),
        *(
            (name, wrong)
            for name in COUNTS
            for wrong in ("", "0", "-1", "1.5", "many", "1000001", "9" * 5000, "²")
        ),
        *(("PROVIDER_WAIT_SECONDS", wrong) for wrong in ("", "-0.1", "2.1", "nan", "inf", "soon")),
    ],
)
def test_a_mistake_is_named_without_a_password(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=f"^{name} ") as stopped:
        settings_of(monkeypatch, **{"SECRET_KEY": "k7Qz9-Lm" * 10, "DEBUG": "0", name: value})
    assert not {"secret", "word"} & set(re.split(r"\W+", str(stopped.value).replace("user and password", "")))
    assert stopped.value.__suppress_context__ or stopped.value.__context__ is None


def test_a_level_of_the_log_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_of(monkeypatch, LOG_LEVEL="debug")["LOGGING"]["root"]["level"] == "DEBUG"


def test_a_mail_server_is_read_from_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings_of(monkeypatch, EMAIL_URL="smtp+tls://u:p%40s@mail.example")
    values = ["mail.example", 587, "u", "p@s", True, False]
    if django.VERSION >= (6, 1):
        options = found["MAILERS"]["default"]["OPTIONS"]
        assert [options[name] for name in ("host", "port", "username", "password", "use_tls", "use_ssl")] == values
    else:
        names = ("HOST", "PORT", "HOST_USER", "HOST_PASSWORD", "USE_TLS", "USE_SSL")
        assert [found[f"EMAIL_{name}"] for name in names] == values
    assert backend_of(found) == "smtp"
    assert backend_of(settings_of(monkeypatch, EMAIL_URL="", DEBUG="1")) == "filebased"


def backend_of(found: dict[str, Any]) -> str:
    path = found["MAILERS"]["default"]["BACKEND"] if django.VERSION >= (6, 1) else found["EMAIL_BACKEND"]
    return str(path.split(".")[-2])
