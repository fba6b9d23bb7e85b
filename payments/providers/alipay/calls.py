"""Calls to Alipay's gateway: signed by us, believed only where Alipay signed the answer.

Source: Alipay open platform, "signing" and "common error codes" (read 2026-11).
"""

import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.providers import rsa
from payments.providers.account import Account
from payments.providers.alipay.facts import CHANNEL
from payments.providers.alipay.settings import app_key, gateway_url, trusted
from payments.providers.alipay.signing import genuine_answer, signed_text
from payments.providers.documents import CHINA, TIME_FORMAT, text_of
from payments.providers.settings_fields import Settings
from payments.providers.transport import Limits

SUCCESS = "10000"
# too many calls, not allowed to call: the gateway's own words, and none about a trade or refund.
# Source: Alipay open platform, "common error codes" (read 2026-11)
_TURNED_AWAY = frozenset({"20001", "40005", "40006"})
# missing, wrong or insufficient parameters, business failed; any other code, 20000 among them, leaves it open
_REFUSED = frozenset({"40001", "40002", "40003", "40004"})
_NOT_OUR_SIGNATURE = "isv.invalid-signature"


class AlipayCalls(Account):
    """Signed calls of one application. Thread-safe. Raises ConfigError."""

    channel = CHANNEL

    def __init__(self, settings: Settings, limits: Limits, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(settings["SELLER_ID"], limits=limits, clock=clock)
        self._url, self._app_id = gateway_url(settings), settings["APP_ID"]
        self._key = rsa.load_private_key(app_key(settings))
        self._trust = trusted(settings, app_key=self._key.public_key(), now=clock())

    def _signed(self, method: str, content: Mapping[str, Any], more: Mapping[str, str]) -> dict[str, str]:
        parameters = {
            "app_id": self._app_id,
            "method": method,
            "format": "JSON",
            "charset": "utf-8",
            "sign_type": "RSA2",
            "timestamp": datetime.fromtimestamp(self._clock(), CHINA).strftime(TIME_FORMAT),
            "version": "1.0",
            "biz_content": json.dumps(content, ensure_ascii=False, separators=(",", ":")),
            **self._trust.parameters,
            **more,
        }
        parameters["sign"] = rsa.sign(signed_text(parameters), self._key)
        return parameters

    def _call(
        self,
        method: str,
        content: Mapping[str, Any],
        more: Mapping[str, str] | None = None,
        *,
        repeats: tuple[str, ...] = ("out_trade_no",),
    ) -> dict[str, Any]:
        """Send one signed request; its verified answer must repeat the members named by `repeats`.

        Raises:
            ProviderRejected: by its `sub_code`.
            OutcomeUnknown: a system error, an undocumented answer, or one about something else.
            ProviderUnavailable: the gateway turned the call away, ahead of the service.
        """
        parameters = self._signed(method, content, more or {})
        received = self.send("POST", self._url, data=parameters)
        answer = genuine_answer(received.content, method, self._trust, now=self._clock())
        gateway_code = text_of(answer, "code")
        if gateway_code == SUCCESS:
            self.must_match({name: content[name] for name in repeats}, answer)
            return answer
        code = str(answer.get("sub_code") or gateway_code)
        if gateway_code in _TURNED_AWAY or code == _NOT_OUR_SIGNATURE:
            raise ProviderUnavailable(f"the gateway turned the call away: {gateway_code} {code}")
        if gateway_code not in _REFUSED or code.endswith("SYSTEM_ERROR"):
            raise OutcomeUnknown(f"the platform answered {code}")
        raise ProviderRejected(code, str(answer.get("sub_msg") or answer.get("msg")))
