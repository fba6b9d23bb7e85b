"""Calls to WeChat Pay v3: signed by us, believed only where the platform signed the answer.

An answer without a genuine signature leaves the outcome unknown.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Unpack

import httpx

from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable, SignatureInvalid
from payments.providers import rsa
from payments.providers.account import Account, Options
from payments.providers.transport import Answer, download
from payments.providers.wechat.keys import KeyRing
from payments.providers.wechat.signing import Signer, verify

API_V3_KEY_BYTES = 32
# to be asked again, under the same number; Source: API v3, "error codes", "refund best practice" (read 2026-11)
_TOO_OFTEN = frozenset({"FREQUENCY_LIMITED", "FREQUENCY_LIMIT_EXCEED", "RATELIMIT_EXCEEDED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WeChatConfig:
    """One merchant account."""

    api_url: str  # without a trailing slash
    mch_id: str
    app_id: str
    mch_serial: str
    api_v3_keys: tuple[bytes, ...] = field(repr=False)  # the current one first; older messages may need a former
    mch_private_key_pem: bytes = field(repr=False)  # of certificate `mch_serial`
    platform_keys: Mapping[str, bytes]  # certificates by upper-case serial, public keys by ``PUB_KEY_ID_…``


class WeChatCalls(Account):
    """Signed calls of one merchant account. Thread-safe. Raises ValueError for an unusable key."""

    def __init__(self, config: WeChatConfig, **options: Unpack[Options]) -> None:
        if not config.api_v3_keys or any(len(key) != API_V3_KEY_BYTES for key in config.api_v3_keys):
            raise ValueError("the API v3 key must have 32 bytes")
        super().__init__(config.mch_id, **options)
        self.config = config
        self._signer = Signer(
            mch_id=config.mch_id,
            serial=config.mch_serial,
            key=rsa.load_private_key(config.mch_private_key_pem),
        )
        self._platform = KeyRing(config.platform_keys)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one signed request and return the decoded, verified answer ({} for 204).

        Raises:
            ProviderRejected: refused, by its code.
            ProviderUnavailable: too many calls; this one did nothing.
            OutcomeUnknown: no answer, or one without success, such as ``202 USER_PAYING``.
        """
        text = "" if body is None else json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        headers = self._headers(method, path, text)
        received = self.send(method, self.config.api_url + path, content=text.encode(), headers=headers)
        self._verify_answer(received)
        answer = received.document()
        status, code = received.status, str(answer.get("code", received.status))
        if status in (httpx.codes.OK, httpx.codes.NO_CONTENT) and "code" not in answer:
            return answer
        if status == httpx.codes.TOO_MANY_REQUESTS or code in _TOO_OFTEN:
            raise ProviderUnavailable(f"the platform asks for fewer calls: {code}")
        if status == httpx.codes.UNAUTHORIZED:
            raise ProviderUnavailable(f"the platform does not take our signature: {code}")
        if status < 300:
            raise OutcomeUnknown(f"the platform answered {status} {code}: it is not done")
        raise ProviderRejected(code, str(answer.get("message", "")))

    def _download(self, address: str, *, bytes_max: int) -> bytes:
        """Fetch a file that a signed answer named; the file is not signed, so the caller checks it."""
        headers = self._headers("GET", self._own_target(address), "") | {"Accept": "*/*"}
        return download(self._http, address, headers=headers, bytes_max=bytes_max, limits=self._limits)

    def _own_target(self, address: str) -> str:
        """Return path and query of `address` as signed; OutcomeUnknown at any host but our API's."""
        base = httpx.URL(self.config.api_url)
        prefix = base.raw_path.rstrip(b"/")
        try:
            url = httpx.URL(address)
        except (httpx.InvalidURL, TypeError):
            raise OutcomeUnknown("the download's address is none") from None
        same = (url.scheme, url.host, url.port, url.userinfo) == (base.scheme, base.host, base.port, b"")
        if not same or not url.raw_path.startswith(prefix + b"/v3/"):
            raise OutcomeUnknown(f"the download is at {url.host!r}, which is not the API's own address")
        return url.raw_path.removeprefix(prefix).decode("ascii")

    def _decrypt(self, sealed: Mapping[str, Any]) -> bytes:
        """Decrypt an ``AEAD_AES_256_GCM`` part by any key that we hold; raises of `UNREADABLE`."""
        if sealed["algorithm"] != "AEAD_AES_256_GCM":
            raise ValueError(f"unknown algorithm {sealed['algorithm']!r}")
        ciphertext, nonce = sealed["ciphertext"], sealed["nonce"].encode()
        associated_data = sealed.get("associated_data", "").encode()
        decrypt = partial(rsa.decrypt, ciphertext, nonce=nonce, associated_data=associated_data)
        *earlier, last = self.config.api_v3_keys
        for key in earlier:
            with suppress(ValueError):
                return decrypt(key=key)
        return decrypt(key=last)

    def _headers(self, method: str, path: str, body: str) -> dict[str, str]:
        headers = {
            "Authorization": self._signer.authorization(method=method, target=path, body=body, now=self._clock()),
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": "payonce",
        }
        # naming a public key asks the platform to sign its answer with it instead of a certificate
        if self._platform.public_key_id is not None:
            headers["Wechatpay-Serial"] = self._platform.public_key_id
        return headers

    def _verify_answer(self, received: Answer) -> None:
        try:
            verify(received.headers, received.content, keys=self._platform, now=self._clock())
        except SignatureInvalid as error:
            # an unsigned refusal may come from anything on the way; it proves nothing
            raise OutcomeUnknown(f"answer {received.status} is not signed by the platform: {error}") from error
