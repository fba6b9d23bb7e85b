"""The platform's keys that we hold, by serial: several at once, so that an old and a new one overlap.

Certificates are renewed every five years at the latest; from some moment on the platform signs with the new one,
while notifications on their way still carry the old one's signature. So a ring holds both, and `keep_certificates`
puts new ones beside the old ones in good time. Nothing here calls out: a serial that we do not hold is refused,
never fetched, because whoever sends us bytes names the serial.

Source: WeChat Pay API v3, "platform certificate update guide", "platform public key" (read 2026-11).
"""

import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from payments.errors import SignatureInvalid
from payments.providers import rsa

PUBLIC_KEY_PREFIX = "PUB_KEY_ID_"
SERIAL = re.compile(r"[0-9A-F]{8,64}")
_FILE_MODE = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A key with the time in which its signatures count; a bare public key has no end."""

    key: RSAPublicKey
    valid_from: datetime | None = None
    valid_until: datetime | None = None


class KeyRing:
    """The platform's certificates and public keys. Immutable, thread-safe.

    Args:
        pems: certificates by hexadecimal serial, public keys by ``PUB_KEY_ID_…``.

    Attributes:
        public_key_id: the public key that our requests ask the platform to sign with, None to leave it to the
            platform. Where several are held it is the greatest in the order of characters: the documentation
            gives the ids no order in time, so this is only a choice that every process makes alike. Answers
            signed with another one that is held are accepted too; to have another one named, take the greatest
            one's file away.

    Raises:
        ValueError: what stands under a serial is not the RSA certificate of that serial, or what stands under an
            id is not an RSA public key.
    """

    def __init__(self, pems: Mapping[str, bytes]) -> None:
        self._held = {_name(serial): _held(serial, pem) for serial, pem in pems.items()}
        self.public_key_id = max((name for name in self._held if name.startswith(PUBLIC_KEY_PREFIX)), default=None)

    def find(self, serial: str, *, now: float) -> RSAPublicKey:
        """The key of this serial, written in any case.

        Args:
            now: when its signature came, in seconds since the epoch.

        Raises:
            SignatureInvalid: not held, or its certificate was not valid then.
        """
        held = self._held.get(_name(serial))
        if held is None:
            raise SignatureInvalid("signed with a key that we do not hold")
        if held.valid_from is not None and now < held.valid_from.timestamp():
            raise SignatureInvalid("signed with a certificate that is not valid yet")
        if held.valid_until is not None and now > held.valid_until.timestamp():
            raise SignatureInvalid(f"signed with a certificate that expired on {held.valid_until:%Y-%m-%d}")
        return held.key


def serial_of(pem: bytes) -> str:
    """The serial of a certificate, as its file is named. Raises ValueError if `pem` is none."""
    return f"{x509.load_pem_x509_certificate(pem).serial_number:X}"


def keep_certificates(folder: Path, certificates: Mapping[str, bytes]) -> tuple[str, ...]:
    """Put certificates that are new into `folder`; the serials of those that were.

    Each appears whole or not at all, whoever reads or writes there at the same time. A file that is there is
    never changed and none is ever deleted: a retired certificate is taken away by a person.

    Args:
        folder: ``WECHAT_PLATFORM_KEYS_DIR``.
        certificates: as `WeChatPay.download_certificates` gives them.

    Raises:
        ValueError: one is not the certificate of its serial (then none is written), or a file of that name holds
            something else (then the others are written).
        OSError: the folder cannot be written to.
    """
    KeyRing(certificates)
    if wrong := [serial for serial in certificates if not SERIAL.fullmatch(serial)]:
        raise ValueError(f"not a serial of upper-case hexadecimal digits: {wrong[0]!r}")
    new, other = [], []
    for serial, pem in sorted(certificates.items()):
        path = folder / f"{serial}.pem"
        if _created(path, pem):
            new.append(serial)
        elif not _is_certificate(path, pem):
            other.append(path.name)
    if other:
        raise ValueError(f"{folder} holds something else as {', '.join(other)}; a person must look")
    return tuple(new)


def _created(path: Path, content: bytes) -> bool:
    """Whether the file is new. A link, unlike a rename, fails where something stands already."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), _FILE_MODE)
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
            return True
        return False
    finally:
        draft.unlink(missing_ok=True)


def _is_certificate(path: Path, pem: bytes) -> bool:
    """Whether the file holds this very certificate, however its lines are broken."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()) == x509.load_pem_x509_certificate(pem)
    except ValueError:
        return False


def _name(serial: str) -> str:
    """One spelling of a serial: some write hexadecimal digits small, or with leading zeros."""
    return serial if serial.startswith(PUBLIC_KEY_PREFIX) else serial.upper().lstrip("0")


def _held(serial: str, pem: bytes) -> _Held:
    try:
        key = rsa.load_public_key(pem)
    except UnsupportedAlgorithm as error:
        raise ValueError("a key of an unknown kind") from error
    if serial.startswith(PUBLIC_KEY_PREFIX):
        return _Held(key=key)
    if serial_of(pem) != _name(serial):
        raise ValueError(f"the certificate under {serial} has the serial {serial_of(pem)}")
    certificate = x509.load_pem_x509_certificate(pem)
    return _Held(
        key=key,
        valid_from=certificate.not_valid_before_utc,
        valid_until=certificate.not_valid_after_utc,
    )
