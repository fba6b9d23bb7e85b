"""Alipay's keys: bare public keys, or certificates with their chain of trust.

A certificate's SN is not X.509's serial number, which is unique for one issuer only, but the MD5 of the issuer's
name (RFC 2253, most specific part first) and that number in decimal. MD5 protects nothing here: the SN chooses a
certificate, the chain of signatures makes it believed.

Source: Alipay open platform, "certificate signing" and "why a request carries app_cert_sn and
alipay_root_cert_sn" (read 2026-11).
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from payments.providers import key_files, rsa

log = logging.getLogger(__name__)

_RSA_SIGNATURES = "1.2.840.113549.1.1."  # the arc of every signature algorithm with RSA
_MOST_LINKS = 6

# the files of certificate mode: ours, of our private key, perhaps with its issuers; Alipay's, several during a
# rotation, and their issuers; the roots of every one of them
APP, PLATFORM, ROOT = "app", "platform", "root"


class CertificateError(ValueError):
    """Unusable certificate: in which of the three files, and a part of a sentence about it."""

    def __init__(self, which: str, problem: str) -> None:
        super().__init__(f"{which}: {problem}")
        self.which = which
        self.problem = problem


def certificate_sn(certificate: x509.Certificate) -> str:
    """Compute the SN of one certificate, 32 hexadecimal digits."""
    text = f"{certificate.issuer.rfc4514_string()}{certificate.serial_number}"
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def root_sn(certificates: Iterable[x509.Certificate]) -> str:
    """Join the SNs of the RSA certificates by ``_``; the file also holds other algorithms."""
    return "_".join(
        certificate_sn(certificate)
        for certificate in certificates
        if certificate.signature_algorithm_oid.dotted_string.startswith(_RSA_SIGNATURES)
    )


class KeyTrust:
    """Key mode: Alipay's public keys, the current one and its successor; any of them may sign."""

    parameters: Mapping[str, str] = {}  # what every request carries about them

    def __init__(self, pem: bytes) -> None:
        self._keys = rsa.load_public_keys(pem)

    def keys(self, cert_sn: str | None, *, now: float) -> tuple[RSAPublicKey, ...]:
        """Return all of them, whatever certificate is named."""
        return self._keys


class CertificateTrust:
    """Certificate mode: Alipay's certificates, each issued under a root that we hold.

    An expired one beside a valid one may stay: notifications of its time still count.
    """

    def __init__(self, pems: Mapping[str, bytes], *, app_key: RSAPublicKey, now: float) -> None:
        app = _loaded(APP, pems[APP])[0]
        if _key_of(APP, app).public_numbers() != app_key.public_numbers():
            raise CertificateError(APP, "the certificate is not of the private key that requests are signed with")
        if not _is_valid(app, now):
            raise CertificateError(APP, _when(app))
        roots = _loaded(ROOT, pems[ROOT])
        known_by = root_sn(roots)
        if not known_by:
            raise CertificateError(ROOT, "no certificate in it is signed with RSA")
        self.parameters: Mapping[str, str] = {"app_cert_sn": certificate_sn(app), "alipay_root_cert_sn": known_by}
        self._held = _believed(_loaded(PLATFORM, pems[PLATFORM]), roots, now=now)

    def keys(self, cert_sn: str | None, *, now: float) -> tuple[RSAPublicKey, ...]:
        """Return the keys of certificates valid at `now`, of this SN or, without one, of all."""
        named = (held for sn, held in self._held.items() if cert_sn in {None, sn})
        return tuple(key for certificate, key in named if _is_valid(certificate, now))


Trust = KeyTrust | CertificateTrust  # keys whose signatures count as Alipay's


def _loaded(which: str, pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise CertificateError(which, "it holds no certificate in PEM form") from error


def _believed(
    held: Sequence[x509.Certificate], roots: Sequence[x509.Certificate], *, now: float
) -> dict[str, tuple[x509.Certificate, RSAPublicKey]]:
    """Select Alipay's own certificates by SN: valid now, later, or formerly."""
    own = key_files.leaves(held)
    issuers = [certificate for certificate in held if certificate not in own]
    if not own:
        raise CertificateError(PLATFORM, "it holds issuers only, and no certificate of Alipay's own")
    if not any(_is_valid(certificate, now) for certificate in own):
        raise CertificateError(PLATFORM, "; ".join(_when(certificate) for certificate in own))
    believed = {}
    for certificate in own:
        end = certificate.not_valid_after_utc.timestamp()
        try:
            # an expired one is judged as of its last day, when its issuers may still have been valid
            if not _comes_from(certificate, issuers, roots, now=min(now, end), links=_MOST_LINKS):
                from_none = "comes from no certificate of the root file that is valid with it"
                raise CertificateError(PLATFORM, f"{_named(certificate)} {from_none}")
            key = _key_of(PLATFORM, certificate)
        except CertificateError as error:
            if end >= now:
                raise
            log.warning("Of Alipay's expired certificates one is left out: %s", error.problem)
        else:
            believed[certificate_sn(certificate)] = (certificate, key)
    return believed


def _key_of(which: str, certificate: x509.Certificate) -> RSAPublicKey:
    try:
        key = certificate.public_key()
    except (UnsupportedAlgorithm, ValueError) as error:
        raise CertificateError(which, f"{_named(certificate)} has an unknown kind of key") from error
    if not isinstance(key, RSAPublicKey):
        raise CertificateError(which, f"{_named(certificate)} has no RSA key")
    return key


def _comes_from(
    certificate: x509.Certificate,
    issuers: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
    *,
    now: float,
    links: int,
) -> bool:
    """Search a chain of valid certificates, at most `links` signatures, to one of `roots`."""
    if any(_is_valid(root, now) and _issued(root, certificate) for root in roots):
        return True
    return links > 1 and any(
        _is_valid(issuer, now)
        and _issued(issuer, certificate)
        and _comes_from(issuer, issuers, roots, now=now, links=links - 1)
        for issuer in issuers
    )


def _issued(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, UnsupportedAlgorithm, TypeError, ValueError):
        return False
    return True


def _is_valid(certificate: x509.Certificate, now: float) -> bool:
    return key_files.is_within_time(certificate, datetime.fromtimestamp(now, UTC))


def _when(certificate: x509.Certificate) -> str:
    """Describe the validity of a certificate that is not valid now."""
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return f"{_named(certificate)} is valid from {first.isoformat()} to {last.isoformat()}, not now"


def _named(certificate: x509.Certificate) -> str:
    return f"the certificate with SN {certificate_sn(certificate)} ({certificate.subject.rfc4514_string()})"
