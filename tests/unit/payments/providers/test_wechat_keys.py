"""The platform's keys over time; their overlap is in tests/system/secrets."""

import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from payments.errors import OutcomeUnknown, SignatureInvalid
from payments.providers import registry
from payments.providers.wechat.client import WeChatPay
from payments.providers.wechat.keys import KeyRing, keep_certificates
from payments.sandbox import keys
from payments.sandbox.issuing import distinguished_name, issue, new_key
from payments.sandbox.wechat.certificates import encrypted
from tests.unit.payments.providers.conftest import Company, channels, signed, unpaid
from tests.unit.payments.providers.test_wechat_notifications import PAID, envelope, signature_headers

NOW = datetime.now(UTC)


class Pair(NamedTuple):
    serial: str
    pem: bytes
    key: Any


@cache
def _key(number: int) -> RSAPrivateKey:
    return new_key()


def pair(
    number: int = 1, *, serial: int | None = None, days: tuple[float, float] = (-1, 1), key: Any = None
) -> Pair:
    """A certificate of the platform and its key."""
    name, private = distinguished_name("Tenpay.com Root CA"), key or _key(number)
    chosen = serial or 0x7A00000000000000000000000000000000000000 + number
    made = issue(name, private.public_key(), issuer=name, key=private, days=days, serial_number=chosen)
    return Pair(f"{chosen:X}", made.public_bytes(Encoding.PEM), private)


def public_key(number: int = 1) -> bytes:
    return _key(number).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def holding(company: Company, folder: Path, platform_keys: dict[str, bytes]) -> WeChatPay:
    """Our side with these keys of the platform alone."""
    for name, pem in platform_keys.items():
        (folder / f"{name}.pem").write_bytes(pem)
    return WeChatPay(channels(company)["wechat"] | {"PLATFORM_KEYS_DIR": str(folder)}, nullcontext)


def test_the_edges_of_a_certificate_s_time_count() -> None:
    held = pair(1, days=(-1, 9))
    made = x509.load_pem_x509_certificate(held.pem)
    begin, end = made.not_valid_before_utc, made.not_valid_after_utc
    ring = KeyRing({held.serial: held.pem})
    for moment in (begin, end):
        assert ring.find(held.serial, now=moment.timestamp()) == held.key.public_key()
    outside = {"not valid yet": begin - timedelta(seconds=1), "expired on": end + timedelta(seconds=1)}
    for why, moment in outside.items():
        with pytest.raises(SignatureInvalid, match=why):
            ring.find(held.serial, now=moment.timestamp())


def test_a_key_is_found_by_its_name_alone() -> None:
    ids = [f"PUB_KEY_ID_011900000001202{year}" for year in (6, 5, 4)]
    held = pair(3, serial=0x0ABCDEF123456789)
    certificate = {f"0{held.serial}": held.pem}
    for order in (ids, ids[::-1]):
        ring = KeyRing({name: public_key(ids.index(name)) for name in order} | certificate)
        assert ring.public_key_id == ids[0]
    spelled = ("ABCDEF123456789", "abcdef123456789", "0ABCDEF123456789", "000abcdef123456789")
    for names, key in (*(((name,), _key(number)) for number, name in enumerate(ids)), (spelled, held.key)):
        for name in names:
            assert ring.find(name, now=NOW.timestamp()) == key.public_key()
    for other in ("", "0", "ABCDEF12345678", "PUB_KEY_ID_ABCDEF123456789"):
        with pytest.raises(SignatureInvalid, match="do not hold"):
            ring.find(other, now=NOW.timestamp())
    assert KeyRing(certificate).public_key_id is None


@pytest.mark.parametrize(
    ("serial", "pem", "why"),
    [
        ("7B" * 20, pair(1).pem, "has the serial 7A"),
        (pair(1).serial, public_key(), "."),
        ("PUB_KEY_ID_1", b"nonsense", "."),
        (pair(1).serial, pair(1, key=ec.generate_private_key(ec.SECP256R1())).pem, "not an RSA public key"),
    ],
)
def test_what_is_not_the_key_of_its_name_is_not_held(serial: str, pem: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        KeyRing({serial: pem})


def test_an_expired_certificate_proves_what_it_signed_in_its_time(
    wechat: WeChatPay, company: Company, platform: keys.Keys, tmp_path: Path
) -> None:
    ended = datetime.now(UTC) - timedelta(seconds=1)
    serial, second = int(platform.platform_serial, 16), 1 / 86_400
    expired = pair(key=platform.platform, serial=serial, days=(-9, -second))
    late = holding(company, tmp_path, {expired.serial: expired.pem})
    company.answer = unpaid(company)
    assert wechat.query(out_trade_no="a" * 32).facts == ()  # the same signature by a certificate that is valid
    with pytest.raises(OutcomeUnknown, match="expired on"):
        late.query(out_trade_no="a" * 32)
    assert ["Wechatpay-Serial" in headers for _, headers in company.asked] == [
        True,
        False,
    ]  # which holds no public key
    body, came = envelope(platform, PAID), ended - timedelta(days=1)
    headers = signature_headers(platform, body, sent_at=int(came.timestamp()))
    assert late.read_notification(headers=headers, body=body, now=came).facts


@pytest.mark.parametrize(
    ("serial", "pem"),
    [
        ("../" + pair(1).serial, pair(1).pem),
        (pair(1).serial.lower(), pair(1).pem),
        (pair(1).serial, pair(2).pem),
        ("PUB_KEY_ID_1", public_key()),
        ("1", pair(1, serial=1).pem),
    ],
)
def test_what_is_not_the_certificate_of_its_serial_is_not_kept(tmp_path: Path, serial: str, pem: bytes) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    with pytest.raises(ValueError):
        keep_certificates(folder, {pair(2).serial: pair(2).pem, serial: pem})
    assert (names(folder), names(tmp_path)) == ([], ["keys"])


def listed(**changed: Any) -> dict[str, Any]:
    sealed = encrypted(pair(1).pem, associated_data="certificate")
    return {"data": [{"serial_no": pair(1).serial, "encrypt_certificate": sealed, **changed}]}


@pytest.mark.parametrize(
    "document",
    [
        lambda: listed(serial_no="7B" * 20),
        lambda: listed(encrypt_certificate=None),
        lambda: listed(encrypt_certificate={"algorithm": "AEAD_AES_256_GCM"}),
        lambda: listed(encrypt_certificate={"algorithm": "NONE"}),
        lambda: listed(encrypt_certificate=encrypted(pair(1).pem, associated_data="") | {"nonce": "other bytes!"}),
        lambda: {"data": 5},
        lambda: {},
    ],
)
def test_certificates_of_another_shape_are_unknown(wechat: WeChatPay, company: Company, document: Any) -> None:
    company.answer = signed(document())
    with pytest.raises(OutcomeUnknown, match="certificates cannot be read"):
        wechat.download_certificates()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_new_certificates_are_kept_beside_the_old_ones(tmp_path: Path) -> None:
    one, two = pair(1), pair(2)
    (tmp_path / "PUB_KEY_ID_1.pem").write_bytes(public_key())
    assert keep_certificates(tmp_path, {one.serial: one.pem}) == (one.serial,)
    assert keep_certificates(tmp_path, {two.serial: two.pem, one.serial: one.pem}) == (two.serial,)
    by_hand = one.pem.replace(b"\n", b"\r\n") + b"\r\n"  # the same certificate with other line ends is the same
    (tmp_path / f"{one.serial}.pem").write_bytes(by_hand)
    assert keep_certificates(tmp_path, {two.serial: two.pem, one.serial: one.pem}) == ()
    assert names(tmp_path) == sorted(["PUB_KEY_ID_1.pem", f"{one.serial}.pem", f"{two.serial}.pem"])
    assert (tmp_path / f"{one.serial}.pem").read_bytes() == by_hand
    kept = tmp_path / f"{two.serial}.pem"
    assert (kept.read_bytes(), stat.S_IMODE(kept.stat().st_mode)) == (two.pem, 0o644)
    with pytest.raises(OSError):
        keep_certificates(tmp_path / "nowhere", {one.serial: one.pem})


def test_a_file_with_other_content_is_never_overwritten(tmp_path: Path) -> None:
    one, two, three = pair(1), pair(2), pair(3)
    (tmp_path / f"{one.serial}.pem").write_bytes(b"something else")
    (tmp_path / f"{two.serial}.pem").write_bytes(pair(2, days=(-1, 99)).pem)
    with pytest.raises(ValueError, match="a person must look") as caught:
        keep_certificates(tmp_path, {each.serial: each.pem for each in (one, two, three)})
    assert f"{one.serial}.pem, {two.serial}.pem" in str(caught.value)
    assert (tmp_path / f"{one.serial}.pem").read_bytes() == b"something else"
    assert (tmp_path / f"{two.serial}.pem").read_bytes() != two.pem
    assert (tmp_path / f"{three.serial}.pem").read_bytes() == three.pem  # the others are kept all the same
    assert len(names(tmp_path)) == 3


def test_many_at_once_keep_it_once(tmp_path: Path) -> None:
    certificates = {each.serial: each.pem for each in (pair(1), pair(2))}
    with ThreadPoolExecutor(max_workers=8) as pool:
        said = list(pool.map(lambda _: keep_certificates(tmp_path, certificates), range(16)))
    assert sorted(serial for new in said for serial in new) == sorted(certificates)
    assert names(tmp_path) == sorted(f"{serial}.pem" for serial in certificates)


def test_a_mistake_in_a_folder_of_keys_is_named(platform: keys.Keys, company: Company, tmp_path: Path) -> None:
    settings = channels(company)["wechat"]

    def start(folder: Path) -> Any:
        settings["PLATFORM_KEYS_DIR"] = str(folder)
        return registry.build({"wechat": settings})["wechat"]

    for folder, why in ((Path("/nowhere"), "/nowhere is not a folder"), (tmp_path, r"holds no \.pem file")):
        with pytest.raises(registry.ConfigError, match=why):
            start(folder)
    one, two = pair(1), pair(2)
    keep_certificates(tmp_path, {each.serial: each.pem for each in (one, two)})
    for name in (two.serial, "platform"):
        (tmp_path / f"{name}.pem").write_bytes(one.pem)
        with pytest.raises(registry.ConfigError, match=rf"WECHAT_PLATFORM_KEYS_DIR: .*{name}\.pem"):
            start(tmp_path)
        (tmp_path / f"{name}.pem").unlink()
