"""Money strings, times of China, unknown documents, and the cryptographic primitives."""

from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from decimal import Decimal
from xml.etree import ElementTree

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from payments import money
from payments.errors import NotificationMalformed, OutcomeUnknown
from payments.providers import readable, reading, rsa
from payments.providers.documents import china_time


@settings(max_examples=50)
@given(st.integers(min_value=0, max_value=10**25), st.sampled_from(["CNY", "SEK", "KRW", "KWD"]))
def test_money_goes_there_and_back(amount_minor: int, currency: str) -> None:
    assert money.from_decimal(money.to_decimal(amount_minor, currency), currency) == amount_minor


YUAN = {"19.9": 1990, "0.01": 1, "7": 700, "1.900": 190, "9" * 40 + ".99": 10**42 - 1}
NO_YUAN = ("", "-1", "1e3", "1.999", "1." + "0" * 40 + "1", "9" * 5000, "1,00", "NaN", " 1", "1.", ".5", "１")
NO_TIMES = (
    *("", "2026-11-21 15:07", "2026-11-21T15:07:00", "2026-11-21 15:07:00+00:00", "2026-11-21 15:07:00.123456"),
    *("2026-11-21 25:07:00", "0001-01-01 00:00:00"),
)


@pytest.mark.parametrize("text", [*YUAN, *NO_YUAN])
def test_yuan_are_read_exactly_or_refused(text: str) -> None:
    with nullcontext() if text in YUAN else pytest.raises(ValueError):
        assert money.from_decimal(text, "CNY") == YUAN[text]


def test_negative_amounts_and_unknown_currencies_are_refused() -> None:
    for minor, currency, why in ((-1, "CNY", "negative"), (1, "XXX", "currency")):
        with pytest.raises(ValueError, match=why):
            money.to_decimal(minor, currency)


def test_a_time_of_china_is_eight_hours_ahead_and_has_one_form() -> None:
    assert china_time("2026-11-21 07:07:00") == datetime(2026, 11, 20, 23, 7, tzinfo=UTC)
    for text in NO_TIMES:
        with pytest.raises(ValueError):
            china_time(text)


@settings(max_examples=30)
@given(st.binary(max_size=200), st.binary(max_size=40))
def test_encryption_goes_there_and_back_and_minds_its_associated_data(plain: bytes, more: bytes) -> None:
    key, nonce = b"k" * 32, b"n" * 12
    sealed = rsa.encrypt(plain, key=key, nonce=nonce, associated_data=more)
    assert rsa.decrypt(sealed, key=key, nonce=nonce, associated_data=more) == plain
    with pytest.raises(ValueError, match="not authentic"):
        rsa.decrypt(sealed, key=key, nonce=nonce, associated_data=more + b"x")


def test_only_rsa_keys_are_taken() -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(ValueError, match="RSA"):
        rsa.load_private_key(curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(ValueError, match="RSA"):
        rsa.load_public_key(curve.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


@pytest.mark.parametrize(
    "parse",
    [
        lambda: {}["amount"],
        [].pop,
        lambda: Decimal("twelve"),
        lambda: int(Decimal("Infinity")),
        lambda: ElementTree.fromstring("<torn"),
        b"\xff".decode,
    ],
)
def test_what_cannot_be_parsed_is_unknown_or_malformed(parse: Callable[[], object]) -> None:
    with pytest.raises(OutcomeUnknown, match="the answer's payment cannot be read: "), reading("payment"):
        parse()
    with pytest.raises(NotificationMalformed, match="not a readable notification: "), readable("notification"):
        parse()
