"""Signatures of WeChat Pay v3: requests, answers, notifications, the wallet's arguments.

Source: WeChat Pay API v3, "signature generation", "signature verification", "JSAPI: bring up the payment" (read
2026-11).
"""

import secrets
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from payments.errors import SignatureInvalid
from payments.providers import rsa
from payments.providers.authenticity import lower_case, must_be_fresh
from payments.providers.wechat.keys import KeyRing

AUTHORIZATION_SCHEME = "WECHATPAY2-SHA256-RSA2048"
# the platform sends notifications signed with this prefix to see whether we really verify
PROBE_PREFIX = "WECHATPAY/SIGNTEST/"


def request_message(*, method: str, target: str, timestamp: str, nonce: str, body: str) -> bytes:
    """Build the text that a request's signature covers; `target` begins with ``/v3``."""
    return f"{method}\n{target}\n{timestamp}\n{nonce}\n{body}\n".encode()


def answer_message(*, timestamp: str, nonce: str, body: bytes) -> bytes:
    """Build the text that the signature of an answer or notification covers."""
    return f"{timestamp}\n{nonce}\n".encode() + body + b"\n"


class Signer:
    """The merchant's signature, by the key of the certificate `serial`."""

    def __init__(self, *, mch_id: str, serial: str, key: RSAPrivateKey) -> None:
        self._mch_id, self._serial, self._key = mch_id, serial, key

    def authorization(self, *, method: str, target: str, body: str, now: float) -> str:
        """Build the ``Authorization`` header of one request."""
        timestamp, nonce = str(int(now)), secrets.token_hex(16)
        message = request_message(method=method, target=target, timestamp=timestamp, nonce=nonce, body=body)
        return (
            f'{AUTHORIZATION_SCHEME} mchid="{self._mch_id}",nonce_str="{nonce}",'
            f'signature="{rsa.sign(message, self._key)}",timestamp="{timestamp}",serial_no="{self._serial}"'
        )

    def wallet_params(self, *, app_id: str, prepay_id: str, now: float) -> dict[str, str]:
        """Build the signed arguments of the wallet's ``getBrandWCPayRequest``."""
        timestamp, nonce, package = str(int(now)), secrets.token_hex(16), f"prepay_id={prepay_id}"
        message = f"{app_id}\n{timestamp}\n{nonce}\n{package}\n".encode()
        return {
            "appId": app_id,
            "timeStamp": timestamp,
            "nonceStr": nonce,
            "package": package,
            "signType": "RSA",
            "paySign": rsa.sign(message, self._key),
        }


def verify(headers: Mapping[str, str], body: bytes, *, keys: KeyRing, now: float) -> None:
    """Require the platform's signature, five minutes from `now`. Raises SignatureInvalid."""
    given = lower_case(headers)
    timestamp, nonce = given.get("wechatpay-timestamp", ""), given.get("wechatpay-nonce", "")
    signature, serial = given.get("wechatpay-signature", ""), given.get("wechatpay-serial", "")
    if not (timestamp and nonce and signature and serial):
        raise SignatureInvalid("a Wechatpay header is missing")
    must_be_fresh(timestamp, now=now)
    if signature.startswith(PROBE_PREFIX):
        raise SignatureInvalid("a probe of the platform")
    key = keys.find(serial, now=now)
    if not rsa.verifies(answer_message(timestamp=timestamp, nonce=nonce, body=body), signature, key):
        raise SignatureInvalid("the signature does not verify")
