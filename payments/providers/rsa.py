"""RSA-SHA256 signatures and AES-GCM. Pure primitives, no policy."""

import base64
import binascii
import re
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key


@lru_cache(maxsize=4)  # testing that it is one takes a tenth of a second, and checks and builders all ask
def load_private_key(pem: bytes) -> RSAPrivateKey:
    """Load an unencrypted RSA private key. Raises ValueError."""
    key = load_pem_private_key(pem, password=None)
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("not an RSA private key")
    return key


def load_public_key(pem: bytes) -> RSAPublicKey:
    """Load a PEM public key or certificate. Raises ValueError if it is neither, or not RSA."""
    try:
        is_certificate = b"BEGIN CERTIFICATE" in pem
        key: object = (
            x509.load_pem_x509_certificate(pem).public_key() if is_certificate else load_pem_public_key(pem)
        )
    except UnsupportedAlgorithm as error:
        raise ValueError("a key of an unknown kind") from error
    if not isinstance(key, RSAPublicKey):
        raise ValueError("not an RSA public key")
    return key


PEM_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)


def load_public_keys(pem: bytes) -> tuple[RSAPublicKey, ...]:
    """Load every public key or certificate of `pem`, in order, at least one. Raises ValueError."""
    keys = tuple(load_public_key(block.group()) for block in PEM_BLOCK.finditer(pem))
    if not keys:
        raise ValueError("no PEM block")
    return keys


def sign(message: bytes, key: RSAPrivateKey) -> str:
    """Sign with RSASSA-PKCS1-v1_5 and SHA-256; base64."""
    return base64.b64encode(key.sign(message, padding.PKCS1v15(), hashes.SHA256())).decode()


def verifies(message: bytes, signature: str, key: RSAPublicKey) -> bool:
    """Check `signature` (base64) against `message`; False also for what is not base64."""
    try:
        key.verify(base64.b64decode(signature, validate=True), message, padding.PKCS1v15(), hashes.SHA256())
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def encrypt(plaintext: bytes, *, key: bytes, nonce: bytes, associated_data: bytes) -> str:
    """Encrypt with AES-GCM; base64, the 16-byte tag at the end."""
    return base64.b64encode(AESGCM(key).encrypt(nonce, plaintext, associated_data)).decode()


def decrypt(ciphertext: str, *, key: bytes, nonce: bytes, associated_data: bytes) -> bytes:
    """Decrypt what `encrypt` made, by a key of 16, 24 or 32 bytes. Raises ValueError."""
    try:
        return AESGCM(key).decrypt(nonce, base64.b64decode(ciphertext, validate=True), associated_data)
    except (InvalidTag, binascii.Error) as error:
        raise ValueError("the cipher text is not authentic") from error
