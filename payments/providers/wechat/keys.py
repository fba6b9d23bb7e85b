"""Key ring of the platform: certificates and public keys by serial, old and new.

The platform renews its certificates and from some moment on signs with the new one, while notifications under way
still carry the old signature. `keep_certificates` stores new ones ahead of that. An unknown serial is refused,
never fetched: the sender of the bytes chooses it.

Source: WeChat Pay API v3, "platform certificate update guide", "platform public key" (read 2026-11).
"""

import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from payments.errors import SignatureInvalid
from payments.providers import rsa

PUBLIC_KEY_PREFIX = "PUB_KEY_ID_"
SERIAL = re.compile(r"[0-9A-F]{8,64}")
_FILE_MODE = 0o644


class KeyRing:
    """The platform's certificates by serial, and public keys by their ids. Immutable.

    Raises ValueError for another key than its name says.
    """

    def __init__(self, pems: Mapping[str, bytes]) -> None:
        self._held = {_name(serial): _held(serial, pem) for serial, pem in pems.items()}
        # the key that our requests ask the platform to sign with; None leaves the choice to it. The greatest of
        # several: every process chooses alike. Answers signed with another held key are accepted; to name another,
        # remove the file of the greatest
        self.public_key_id = max((name for name in self._held if name.startswith(PUBLIC_KEY_PREFIX)), default=None)

    def find(self, serial: str, *, now: float) -> RSAPublicKey:
        """Return the key of `serial`, in any case, if good at `now`, in epoch seconds.

        Raises SignatureInvalid where it is not held, or its certificate was not valid then.
        """
        key, certificate = self._held.get(_name(serial), (None, None))
        if key is None:
            raise SignatureInvalid("signed with a key that we do not hold")
        if certificate is None:
            return key
        first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if now < first.timestamp():
            raise SignatureInvalid("signed with a certificate that is not valid yet")
        if now > last.timestamp():
            raise SignatureInvalid(f"signed with a certificate that expired on {last:%Y-%m-%d}")
        return key


def serial_of(pem: bytes) -> str:
    """Return a certificate's serial, as its file is named. Raises ValueError if `pem` is none."""
    return f"{x509.load_pem_x509_certificate(pem).serial_number:X}"


def keep_certificates(folder: Path, certificates: Mapping[str, bytes]) -> tuple[str, ...]:
    """Store new certificates in `folder` and return their serials.

    Each file appears whole or not at all, under concurrent readers and writers. No file is changed or deleted: a
    person removes a retired certificate.

    Raises:
        ValueError: one is not the certificate of its serial (none is written), or a file of that name holds
            something else (the others are written).
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
    """Create the file, if there is none; a link, unlike a rename, fails where one exists."""
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
    """Compare the file's certificate with `pem`, however its lines are broken."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()) == x509.load_pem_x509_certificate(pem)
    except ValueError:
        return False


def _name(serial: str) -> str:
    """Normalise a serial: some write hexadecimal digits small, or with leading zeros."""
    return serial if serial.startswith(PUBLIC_KEY_PREFIX) else serial.upper().lstrip("0")


def _held(serial: str, pem: bytes) -> tuple[RSAPublicKey, x509.Certificate | None]:
    """Load a key with its certificate, whose time it has; a bare public key has no end."""
    key = rsa.load_public_key(pem)
    if serial.startswith(PUBLIC_KEY_PREFIX):
        return key, None
    if serial_of(pem) != _name(serial):
        raise ValueError(f"the certificate under {serial} has the serial {serial_of(pem)}")
    return key, x509.load_pem_x509_certificate(pem)
