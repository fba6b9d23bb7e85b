"""Certificate mode: SNs as Alipay counts them, believed certificates, and settings."""

from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from payments.errors import OutcomeUnknown, SignatureInvalid
from payments.providers import registry
from payments.providers import rsa as signing
from payments.providers.alipay.client import Alipay
from payments.providers.alipay.keys import certificate_sn, root_sn
from payments.providers.alipay.signing import signed_text
from payments.providers.base import TradeStatus
from payments.sandbox import keys, state
from payments.sandbox.issuing import distinguished_name, issue, new_key
from tests.unit.payments.providers.conftest import NUMBER, Company, alipay_says, channels
from tests.unit.payments.providers.test_alipay_notifications import form

QUERY = "alipay.trade.query"
OLD_ISSUER = distinguished_name("Test Class 2 R0")
PENDING = {"code": "10000", "out_trade_no": NUMBER, "trade_status": "WAIT_BUYER_PAY"}


@pytest.fixture(scope="module")
def private() -> dict[str, rsa.RSAPrivateKey]:
    return {name: new_key() for name in ("root", "middle", "platform", "next", "foreign")}


class Authority:
    """A root, an issuer under it, and what they certify."""

    def __init__(self, private: dict[str, rsa.RSAPrivateKey]) -> None:
        self.private = private
        self.root_name = distinguished_name("Test R1")
        self.middle_name = distinguished_name("Test Class 2 R1")
        own = {"by": "root", "issuer": self.root_name, "is_issuer": True}
        self.root, self.middle = (
            self.certify("root", self.root_name, days=(-99, 99), **own),
            self.issuer(is_issuer=True),
        )

    def certify(
        self, name: str, subject: x509.Name, *, by: str, issuer: x509.Name, **more: Any
    ) -> x509.Certificate:
        return issue(subject, self.private[name].public_key(), issuer=issuer, key=self.private[by], **more)

    def issuer(self, **more: Any) -> x509.Certificate:
        return self.certify("middle", self.middle_name, by="root", issuer=self.root_name, **more)

    def platform(self, name: str = "platform", **more: Any) -> x509.Certificate:
        wanted = {"by": "middle", "issuer": self.middle_name, **more}
        return self.certify(name, distinguished_name("Alipay"), **wanted)

    def curve(self, by: str = "") -> x509.Certificate:
        """Certify a key that is not of RSA; by itself, unless another does."""
        key, name = ec.generate_private_key(ec.SECP256R1()), distinguished_name("Curve")
        issuer = self.root_name if by else name
        return issue(name, key.public_key(), issuer=issuer, key=self.private.get(by, key), is_issuer=not by)

    def of_our_key(self, **more: Any) -> x509.Certificate:
        ours = state.keys().app.public_key()
        return issue(distinguished_name("shop"), ours, issuer=self.root_name, key=self.private["root"], **more)


@pytest.fixture(scope="module")
def authority(private: dict[str, rsa.RSAPrivateKey]) -> Authority:
    return Authority(private)


def pem(*certificates: x509.Certificate) -> bytes:
    return b"\n".join(one.public_bytes(Encoding.PEM) for one in certificates)


class Settings:
    """The channel's settings in certificate mode, their files to be changed."""

    def __init__(self, company: Company, platform: keys.Keys, folder: Path) -> None:
        self.settings = channels(company)["alipay"] | {"PUBLIC_KEY_FILE": ""}
        for name, file in platform.alipay_certificates.settings.items():
            copy = folder / Path(file).name
            copy.write_bytes(Path(file).read_bytes())
            self.settings[name.removeprefix("ALIPAY_")] = str(copy)

    def put(self, field: str, content: bytes) -> None:
        Path(self.settings[field]).write_bytes(content)

    def build(self) -> Any:
        return registry.build({"alipay": self.settings})["alipay"]


@pytest.fixture
def settings(company: Company, platform: keys.Keys, tmp_path: Path) -> Settings:
    return Settings(company, platform, tmp_path)


@pytest.fixture
def held(settings: Settings, authority: Authority) -> Any:
    """Build with these platform certificates and the test's own root."""

    def build(*certificates: x509.Certificate) -> Alipay:
        settings.put("PUBLIC_CERT_FILE", pem(*certificates))
        settings.put("ROOT_CERT_FILE", pem(authority.root))
        return settings.build()

    return build


def says(key: rsa.RSAPrivateKey, cert_sn: Any, document: Any = PENDING) -> Any:
    return alipay_says(QUERY, document, key=key, cert_sn=cert_sn)


def answers(alipay: Alipay) -> bool:
    """Ask; an answer that is not believed is none."""
    try:
        return alipay.query(out_trade_no=NUMBER).status is TradeStatus.PENDING
    except OutcomeUnknown:
        return False


def notified(platform: keys.Keys, key: rsa.RSAPrivateKey, *, cert_sn: str | None, covered: bool = True) -> bytes:
    """A notification in certificate mode; the documents leave open if the name is covered."""
    given = form(platform)
    named = given | ({} if cert_sn is None else {"alipay_cert_sn": cert_sn})
    text = signed_text(named if covered else given, without=frozenset({"sign", "sign_type"}))
    return urlencode({**named, "sign": signing.sign(text, key)}).encode()


def believes(alipay: Alipay, body: bytes, *, came: datetime | None = None) -> bool:
    try:
        return bool(alipay.read_notification(headers={}, body=body, now=came or datetime.now(UTC)).facts)
    except SignatureInvalid:
        return False


def test_held_certificates_alone_sign_answers_and_notifications(
    held: Any, authority: Authority, company: Company, platform: keys.Keys
) -> None:
    today, tomorrow, foreign = authority.platform(), authority.platform("next"), authority.platform("foreign")
    alipay = held(today, authority.middle, tomorrow)  # both, while one takes over
    own, successor, other = (authority.private[name] for name in ("platform", "next", "foreign"))
    for key, named, counts in (
        (own, today, True),
        (successor, tomorrow, True),
        (other, foreign, False),  # genuine, but never put into our file
        (other, today, False),  # names ours, is signed by another
        (own, foreign, False),
        (own, authority.middle, False),  # an issuer signs nothing else
        (platform.alipay, today, False),  # key mode's key
    ):
        cert_sn = certificate_sn(named)
        company.answer = says(key, cert_sn)
        assert answers(alipay) is counts
        for covered in (True, False):
            assert believes(alipay, notified(platform, key, cert_sn=cert_sn, covered=covered)) is counts
    for cert_sn in (None, "", 5):
        company.answer = says(own, cert_sn)
        assert not answers(alipay)
    for key, counts in (
        (successor, True),
        (other, False),
        (platform.alipay, False),
    ):  # a notification need not name it
        assert believes(alipay, notified(platform, key, cert_sn=None)) is counts


def test_a_certificate_counts_from_its_first_day_to_its_last(
    held: Any, settings: Settings, authority: Authority, company: Company
) -> None:
    today, tomorrow = authority.platform(days=(-1, 10)), authority.platform("next", days=(5, 30))
    began = datetime.now(UTC).timestamp()
    moment = [began]
    held(today, tomorrow, authority.middle)
    alipay = Alipay(settings.settings, nullcontext, clock=lambda: moment[0])
    for days, counting in ((0, {today}), (6, {today, tomorrow}), (11, {tomorrow})):
        moment[0] = began + timedelta(days=days).total_seconds()
        for name, certificate in (("platform", today), ("next", tomorrow)):
            company.answer = says(authority.private[name], certificate_sn(certificate))
            assert answers(alipay) is (certificate in counting)
    held(today, authority.middle)
    with pytest.raises(registry.ConfigError, match=r"PUBLIC_CERT_FILE: .*: the certificate with SN .* not now"):
        Alipay(settings.settings, nullcontext, clock=lambda: moment[0])


@pytest.mark.parametrize("field", ["APP_CERT_FILE", "PUBLIC_CERT_FILE", "ROOT_CERT_FILE"])
def test_all_three_or_none(settings: Settings, field: str) -> None:
    given = dict(settings.settings)
    for missing in ({}, {field: ""}):
        settings.settings = {name: value for name, value in given.items() if name != field} | missing
        with pytest.raises(registry.ConfigError, match=f"ALIPAY_{field} is not set"):
            settings.build()
    settings.settings = given | {field: "/nowhere.pem"}
    with pytest.raises(registry.ConfigError, match=rf"ALIPAY_{field}: /nowhere\.pem cannot be read"):
        settings.build()


def test_a_name_added_in_key_mode_is_a_forgery(platform: keys.Keys, company: Company, alipay: Alipay) -> None:
    for covered in (True, False):
        body = notified(platform, platform.alipay, cert_sn="0" * 32, covered=covered)
        assert believes(alipay, body) is covered


def test_the_sn_of_a_root(private: dict[str, rsa.RSAPrivateKey], authority: Authority) -> None:
    """Half of the SN of Alipay's real root file; what is not RSA is left out.

    Source: issuer and serial number as that certificate shows them; the SN as published SDKs print it.
    """
    parts = [
        (NameOID.COUNTRY_NAME, "CN"),
        (NameOID.ORGANIZATION_NAME, "iTrusChina"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "China Trust Network"),
        (NameOID.COMMON_NAME, "iTrusChina Class 2 Root CA - G3"),
    ]
    name, key = x509.Name([x509.NameAttribute(oid, value) for oid, value in parts]), private["root"]
    number = 0x10C764E9D560384212D9C08FD10E373FDD0FB396
    published = issue(name, key.public_key(), issuer=name, key=key, serial_number=number)
    roots = [published, authority.curve(), authority.root]
    assert root_sn(roots) == f"02941eef3187dddf3d3b83462e1dfcf6_{certificate_sn(authority.root)}"


@pytest.mark.parametrize("issuer_days", [(-9, 9), (-9, -2)])
def test_what_an_expired_certificate_signed_in_its_time_is_still_read(
    held: Any,
    authority: Authority,
    platform: keys.Keys,
    company: Company,
    caplog: pytest.LogCaptureFixture,
    issuer_days: tuple[int, int],
) -> None:
    more = {"by": "root", "issuer": authority.root_name, "is_issuer": True, "days": issuer_days}
    old = authority.certify("foreign", OLD_ISSUER, **more)
    expired = authority.platform(by="foreign", issuer=OLD_ISSUER, days=(-9, -3))
    forged = authority.platform("root", by="foreign", days=(-9, -3))
    alipay = held(expired, old, forged, authority.platform("next"), authority.middle)
    assert [one for one in (expired, forged) if certificate_sn(one) in caplog.text] == [forged]
    company.answer = says(authority.private["platform"], certificate_sn(expired))
    assert not answers(alipay), "beside its successor it signs nothing new"
    for key, cert_sn, is_ours in (
        ("platform", certificate_sn(expired), True),
        ("platform", None, True),
        ("root", certificate_sn(forged), False),
    ):
        body = notified(platform, authority.private[key], cert_sn=cert_sn)
        for days, counts in ((-4, is_ours), (-14, False), (-2, False), (0, False)):
            assert believes(alipay, body, came=datetime.now(UTC) + timedelta(days=days)) is counts


ENDED = {"days": (-9, -1)}
BROKEN: list[tuple[str, Callable[[Authority], bytes], str]] = [
    ("PUBLIC_CERT_FILE", lambda a: pem(a.platform(**ENDED), a.middle), "is valid from"),
    (
        "PUBLIC_CERT_FILE",
        lambda a: pem(a.platform(**ENDED), a.platform("next", days=(2, 9)), a.middle),
        "valid from .* valid from",
    ),
    ("PUBLIC_CERT_FILE", lambda a: pem(a.middle), "issuers only"),
    *(
        ("PUBLIC_CERT_FILE", chain, "comes from no certificate")
        for chain in (
            lambda a: pem(a.platform()),
            lambda a: pem(a.platform(by="foreign"), a.middle),
            lambda a: pem(a.platform(), a.issuer(is_issuer=True, **ENDED)),
            lambda a: pem(a.issuer(), a.platform()),  # certified by a certificate that may not certify
        )
    ),
    ("PUBLIC_CERT_FILE", lambda a: pem(a.curve(by="root")), "has no RSA key"),
    ("PUBLIC_CERT_FILE", lambda a: b"none", "no certificate in PEM form"),
    ("APP_CERT_FILE", lambda a: pem(a.platform()), "not of the private key"),
    ("APP_CERT_FILE", lambda a: pem(a.of_our_key(**ENDED)), "is valid from"),
    ("ROOT_CERT_FILE", lambda a: pem(a.curve()), "signed with RSA"),
    ("ROOT_CERT_FILE", lambda a: b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----", "no certificate"),
]


@pytest.mark.parametrize(("field", "content", "why"), BROKEN)
def test_a_certificate_that_cannot_be_used_is_named(
    settings: Settings, authority: Authority, field: str, content: Callable[[Authority], bytes], why: str
) -> None:
    settings.put("ROOT_CERT_FILE", pem(authority.root))
    if field == "ROOT_CERT_FILE":
        settings.put("PUBLIC_CERT_FILE", pem(authority.platform(), authority.middle))
    settings.put(field, content(authority))
    with pytest.raises(registry.ConfigError, match=why) as caught:
        settings.build()
    assert str(caught.value).startswith(f"ALIPAY_{field}: {settings.settings[field]}: ")
