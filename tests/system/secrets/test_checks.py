"""`manage.py check` names all mistakes about keys at once, and shows no file's content."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from payments import checks
from tests.sandbox import ROOT
from tests.system.secrets.conftest import ALIPAY, APP, MERCHANT, Files, certificate, key, private_pem, public_pem

SHORT = 1024
NEXT = 10

PRIVATE_FILES = [
    ("WECHAT_MCH_KEY_FILE", "merchant.pem", MERCHANT),
    ("ALIPAY_APP_KEY_FILE", "app.pem", APP),
]
PUBLIC_FILES = [
    ("ALIPAY_PUBLIC_KEY_FILE", "alipay.pem"),
    ("WECHAT_PLATFORM_KEYS_DIR", "platform/PUB_KEY_ID_1.pem"),
]
REQUIRED = {
    "wechat": ["API_URL", "MCH_ID", "APP_ID", "MCH_KEY_FILE", "PLATFORM_KEYS_DIR"],
    "alipay": ["GATEWAY_URL", "APP_ID", "SELLER_ID", "APP_KEY_FILE", "PUBLIC_KEY_FILE"],
    "stripe": ["API_URL"],
}
SECRETS = [("wechat", "API_V3_KEY"), ("stripe", "SECRET_KEY"), ("stripe", "WEBHOOK_SECRET")]
FILE_FIELDS = [
    *(("wechat", "MCH_KEY_FILE"), ("wechat", "MCH_CERT_FILE"), ("wechat", "API_V3_KEY_FILE")),
    *(("alipay", "APP_KEY_FILE"), ("alipay", "PUBLIC_KEY_FILE")),
    *(("stripe", "SECRET_KEY_FILE"), ("stripe", "WEBHOOK_SECRET_FILE")),
]
ADDRESSES = [("wechat", "API_URL"), ("alipay", "GATEWAY_URL"), ("stripe", "API_URL")]


def reported() -> list[str]:
    return [f"{message.id} {message.msg}" for message in checks.check_channels(None)]


def only(expected: str) -> str:
    """The one message, which has `expected` in it."""
    messages = reported()
    assert len(messages) == 1, messages
    assert re.search(expected, messages[0]), messages
    return messages[0]


def test_sound_settings_have_no_message(files: Files) -> None:
    assert reported() == []
    checks.must_be_sound()


def test_a_missing_setting(files: Files) -> None:
    for channel, fields in REQUIRED.items():
        whole = files.channels[channel]
        for field in fields:
            for left in ({**whole, field: ""}, {name: value for name, value in whole.items() if name != field}):
                files.channels[channel] = left
                name = f"{channel.upper()}_{field}"
                assert f"payments.E003 {name} is not set, but other settings of {channel} are." in reported()
        files.channels[channel] = whole


def test_a_missing_secret(files: Files) -> None:
    for channel, field in SECRETS:
        del files.channels[channel][f"{field}_FILE"]
        name = f"{channel.upper()}_{field}"
        assert any(f"Neither {name} nor {name}_FILE is set" in message for message in reported())


def test_a_file_that_cannot_be_read(files: Files) -> None:
    for channel, field in FILE_FIELDS:
        whole = files.channels[channel][field]
        files.channels[channel][field] = "/nowhere/key.pem"
        expected = f"{channel.upper()}_{field}: /nowhere/key.pem cannot be read: No such file or directory"
        assert any(expected in message for message in reported())
        files.channels[channel][field] = whole
    files.channels["stripe"]["SECRET_KEY_FILE"] = str(files.folder)
    only("STRIPE_SECRET_KEY_FILE: .* cannot be read: Is a directory")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda number: private_pem(key(number), password=b"pw"), "is encrypted with a passphrase"),
        (lambda number: public_pem(key(number)), "is a public key; our own private key belongs here"),
        (lambda number: certificate(key(number))[1], "is a certificate; our own private key belongs here"),
        (lambda number: private_pem(key(number, SHORT)), "is a key of 1024 bits; 2048 or more are needed"),
        (lambda number: private_pem(ec.generate_private_key(ec.SECP256R1())), "is not a whole RSA private key"),
        (lambda number: b"MIIEvQ planted", "is not in PEM form"),
        (lambda number: private_pem(key(number))[:500], "is cut short"),
        (lambda number: b"", "is empty"),
    ],
)
def test_a_private_key_of_the_wrong_kind(files: Files, make: Callable[[int], bytes], expected: str) -> None:
    for setting, name, number in PRIVATE_FILES:
        files.put(name, make(number))
        message = only(f"{setting}: .*{name} {expected}")
        assert "planted" not in message
        assert "MII" not in message
        files.put(name, private_pem(key(number)))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: private_pem(key(NEXT)), "holds a private key; the provider's public one belongs here"),
        (lambda: public_pem(key(NEXT, SHORT)), "is a key of 1024 bits; 2048 or more are needed"),
        (lambda: public_pem(ec.generate_private_key(ec.SECP256R1())), "is not a whole RSA public key"),
        (lambda: b"MIIBIj planted", "is not in PEM form"),
        (lambda: public_pem(key(NEXT))[:200], "is cut short"),
        (lambda: b"", "is empty"),
    ],
)
def test_a_public_key_of_the_wrong_kind(files: Files, make: Callable[[], bytes], expected: str) -> None:
    for setting, name in PUBLIC_FILES:
        files.put(name, make())
        message = only(f"{setting}.*: .*{expected}")
        assert "planted" not in message
        assert "MII" not in message
        files.put(name, public_pem(key(ALIPAY)))


def test_certificates_and_their_times(files: Files) -> None:
    files.put("merchant_cert.pem", certificate(key(MERCHANT), begins_days=-9, ends_days=-1)[1])
    only("E003 WECHAT_MCH_CERT_FILE: .* is a certificate that expired on .* get its successor")
    files.put("merchant_cert.pem", certificate(key(MERCHANT), begins_days=1)[1])
    only("E003 WECHAT_MCH_CERT_FILE: .* is a certificate that is not valid before")
    files.put("merchant_cert.pem", certificate(key(MERCHANT), ends_days=7)[1])
    only("W002 WECHAT_MCH_CERT_FILE: .* expires on ")
    files.put("merchant_cert.pem", certificate(key(NEXT))[1])
    only("E003 WECHAT_MCH_CERT_FILE: .* is not the certificate of the key in WECHAT_MCH_KEY_FILE")
    files.put("merchant_cert.pem", public_pem(key(MERCHANT)))
    only("E003 WECHAT_MCH_CERT_FILE: .* is a public key; a certificate belongs here")


def test_a_platform_certificate_may_have_expired_beside_its_successor_only(files: Files) -> None:
    folder = Path(files.channels["wechat"]["PLATFORM_KEYS_DIR"])
    (held,) = folder.glob("*.pem")
    serial, pem = certificate(key(NEXT), begins_days=-9, ends_days=-1)
    files.put(f"platform/{serial}.pem", pem)
    assert reported() == []
    held.unlink()
    only("E003 WECHAT_PLATFORM_KEYS_DIR: no certificate in .* is valid now")


def test_alipays_certificate_may_have_expired_beside_its_successor_only(files: Files) -> None:
    old = certificate(key(ALIPAY), begins_days=-9, ends_days=-1)[1]
    new, soon_over = certificate(key(NEXT))[1], certificate(key(NEXT), ends_days=7)[1]
    alipay = files.channels["alipay"]
    del alipay["PUBLIC_KEY_FILE"]
    for field, content in {
        "APP_CERT_FILE": certificate(key(APP))[1],
        "PUBLIC_CERT_FILE": old + new,
        "ROOT_CERT_FILE": old + new + soon_over,  # each is signed by itself
    }.items():
        alipay[field] = str(files.put(f"{field}.pem", content))
    assert reported() == []
    files.put("PUBLIC_CERT_FILE.pem", old + soon_over)
    only("W002 ALIPAY_PUBLIC_CERT_FILE: .* expires on ")
    files.put("PUBLIC_CERT_FILE.pem", soon_over + new)
    assert reported() == []
    files.put("PUBLIC_CERT_FILE.pem", old)
    only("E003 ALIPAY_PUBLIC_CERT_FILE: .* is valid from .*, not now")


def test_the_serial_of_our_certificate(files: Files) -> None:
    wechat = files.channels["wechat"]
    wechat["MCH_SERIAL"] = "ABCDEF0123456789"
    only("WECHAT_MCH_SERIAL is not the serial of WECHAT_MCH_CERT_FILE")
    del wechat["MCH_CERT_FILE"]
    assert reported() == []
    wechat["MCH_SERIAL"] = "serial=12:34"
    only("WECHAT_MCH_SERIAL must be the hexadecimal serial")
    del wechat["MCH_SERIAL"]
    only("WECHAT_MCH_SERIAL is not set")


@pytest.mark.parametrize("planted", ["planted", "planted" * 9])
def test_an_api_v3_key_of_a_wrong_length(files: Files, planted: str) -> None:
    files.put("api_v3_key", planted.encode())
    assert "planted" not in only(f"WECHAT_API_V3_KEY_FILE: line 1 must have 32 bytes, not {len(planted)}")
    del files.channels["wechat"]["API_V3_KEY_FILE"]
    files.channels["wechat"]["API_V3_KEY"] = planted
    assert "planted" not in only(f"WECHAT_API_V3_KEY must have 32 bytes, not {len(planted)}")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("SECRET_KEY", "pk_test_planted", "STRIPE_SECRET_KEY holds a publishable key"),
        ("SECRET_KEY", "whsec_planted", "STRIPE_SECRET_KEY holds a webhook secret"),
        ("SECRET_KEY", "sk_test_planted sk_test_other", "STRIPE_SECRET_KEY must hold one key"),
        ("SECRET_KEY", "sk_live_planted", "STRIPE_API_URL must begin with https://"),
        ("WEBHOOK_SECRET", "whsec_planted,sk_test_planted", "STRIPE_WEBHOOK_SECRET holds an API key"),
        ("WEBHOOK_SECRET", "whsec_planted,planted", "STRIPE_WEBHOOK_SECRET must hold signing secrets"),
        ("WEBHOOK_SECRET", "whsec_planted,whsec_", "STRIPE_WEBHOOK_SECRET must hold signing secrets"),
    ],
)
def test_a_stripe_secret_in_another_s_place(files: Files, field: str, value: str, expected: str) -> None:
    files.put("stripe_key" if field == "SECRET_KEY" else "stripe_hook", value.encode())
    assert "planted" not in only(expected.replace(f"STRIPE_{field} ", f"STRIPE_{field}_FILE "))
    del files.channels["stripe"][f"{field}_FILE"]
    files.channels["stripe"][field] = value
    assert "planted" not in only(expected)


def test_a_live_key_towards_the_sandbox(files: Files, settings: Any) -> None:
    settings.SANDBOX_URL = "https://sandbox.example"
    files.channels["stripe"]["API_URL"] = "https://sandbox.example/stripe"
    files.put("stripe_key", b"rk_live_planted")
    assert "planted" not in only("E004 STRIPE_SECRET_KEY is a live key, but STRIPE_API_URL is the sandbox")
    files.put("stripe_key", b"rk_test_planted")
    assert reported() == []


@pytest.mark.parametrize(("channel", "field"), ADDRESSES)
def test_an_address_that_is_none_or_holds_a_password(files: Files, channel: str, field: str) -> None:
    for url in ("api.example", "ftp://api.example", "https://", "https://user:planted@api.example"):
        files.channels[channel][field] = url
        assert "planted" not in only(f"{channel.upper()}_{field} must (be an absolute|not hold a user)")


@pytest.mark.parametrize(("channel", "field"), ADDRESSES)
def test_an_address_of_plain_http(files: Files, settings: Any, channel: str, field: str) -> None:
    for url in ("http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "https://api.example"):
        files.channels[channel][field] = url
        assert reported() == []
    for url in ("http://api.example", "http://10.0.0.7:8001", "HTTP://api.example", "http://localhost.example"):
        files.channels[channel][field] = url
        only(f"E005 {channel.upper()}_{field} must begin with https://; {url} is plain http.")
        with pytest.raises(ImproperlyConfigured, match="must begin with https://"):
            checks.must_be_sound()
        settings.DEBUG = True
        assert reported() == []
        settings.DEBUG = False


def test_a_private_file_that_others_can_read_is_a_warning(files: Files) -> None:
    for setting, name in {
        "WECHAT_MCH_KEY_FILE": "merchant.pem",
        "WECHAT_API_V3_KEY_FILE": "api_v3_key",
        "ALIPAY_APP_KEY_FILE": "app.pem",
        "STRIPE_SECRET_KEY_FILE": "stripe_key",
        "STRIPE_WEBHOOK_SECRET_FILE": "stripe_hook",
    }.items():
        (files.folder / name).chmod(0o644)
        only(f"W001 {setting}: every user of this machine can read")
        checks.must_be_sound()
        (files.folder / name).chmod(0o640)
        assert reported() == []


def test_our_own_public_key_in_alipay_s_place(files: Files) -> None:
    files.put("alipay.pem", public_pem(key(APP)))
    only("ALIPAY_PUBLIC_KEY_FILE: .* holds our application's own public key; Alipay's belongs here")


def test_every_mistake_is_listed_at_once(files: Files) -> None:
    files.put("merchant.pem", b"")
    files.put("api_v3_key", b"short")
    files.put("alipay.pem", b"")
    files.put("stripe_key", b"pk_test_1")
    files.put("stripe_hook", b"sk_test_1")
    assert len(reported()) == 5
    with pytest.raises(ImproperlyConfigured) as stopped:
        checks.must_be_sound()
    assert len(str(stopped.value).splitlines()) == 5


def test_a_key_for_answers_that_is_none_stops_the_start_too(settings: Any) -> None:
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "BODY_KEYS": {"2026": "short"}}
    with pytest.raises(ImproperlyConfigured, match=r"BODY_KEYS.*must be 32 bytes"):
        checks.must_be_sound()


@pytest.mark.parametrize(
    "start",
    [
        lambda: call_command("check"),
        lambda: call_command("procrastinate", "worker", "--one-shot", skip_checks=False),
        lambda: runpy.run_path(str(ROOT / "shop" / "wsgi.py")),
        lambda: runpy.run_path(str(ROOT / "shop" / "asgi.py")),
    ],
    ids=["check", "worker", "web", "asgi"],
)
def test_a_mistake_stops_every_start_with_its_sentence(files: Files, start: Callable[[], Any]) -> None:
    files.put("stripe_key", b"pk_test_planted")
    sentence = "STRIPE_SECRET_KEY_FILE holds a publishable key"
    with pytest.raises((SystemCheckError, ImproperlyConfigured), match=sentence) as stopped:
        start()
    assert "planted" not in str(stopped.value)
