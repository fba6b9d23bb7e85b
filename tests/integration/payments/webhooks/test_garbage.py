"""Anything at all, posted to the webhooks: refused as the contract says, nothing kept, no line of the log forged.

What is posted follows from this file and from constants of the code that is loaded, not from chance.
"""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from idempotency.observability.logs import ContextFilter
from payments.models import Anomaly, Notification, Observation
from shop.platform.logs import json_formatter

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_network", "channels")]

LINE = 'x"}\n{"level": "critical", "event": "forged"}\r\n\x1b[2J\x00'
HEADERS = [
    "Wechatpay-Timestamp",
    "Wechatpay-Nonce",
    "Wechatpay-Serial",
    "Wechatpay-Signature",
    "Stripe-Signature",
    "X-Request-Id",
    "Content-Type",
]
# what a web server lets through: no control characters in a header's value
values = st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"]), max_size=80) | st.sampled_from(
    ["", "0", "-1", "1e400", "9" * 400, "t=1,v1=00", "t=,v1=", "WECHATPAY/SIGNTEST/x", "application/json"]
)
bodies = st.binary(max_size=300) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
).map(lambda value: json.dumps(value).encode())
forms = st.dictionaries(
    st.sampled_from(["sign", "sign_type", "app_id", "out_trade_no", "trade_status", "charset", "notify_id", LINE]),
    st.text(max_size=20) | st.just(LINE),
).map(lambda fields: urlencode(fields, errors="replace").encode())


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What the root logger writes, formatted as in production."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(json_formatter())
    handler.addFilter(ContextFilter())
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


def is_refused(channel: str, answer: Any) -> bool:
    if channel == "wechat":
        return answer.status_code in {400, 401} and answer.json()["code"] == "FAIL"
    if channel == "alipay":
        return (answer.status_code, answer.content) == (200, b"fail")
    return bool(answer.status_code == 400)


@settings(max_examples=90, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    channel=st.sampled_from(["wechat", "alipay", "stripe"]),
    headers=st.dictionaries(st.sampled_from(HEADERS), values, max_size=5),
    body=bodies | forms,
)
def test_garbage_leaves_nothing(logged: io.StringIO, channel: str, headers: dict[str, str], body: bytes) -> None:
    kind = headers.pop(
        "Content-Type", "application/x-www-form-urlencoded" if channel == "alipay" else "application/json"
    )
    answer = Client().generic("POST", f"/webhooks/{channel}", body, content_type=kind, headers=headers)
    assert is_refused(channel, answer), (answer.status_code, answer.content)
    assert not Notification.objects.exists()
    assert not Observation.objects.exists()
    assert not Anomaly.objects.exists()
    for line in logged.getvalue().splitlines():
        assert json.loads(line)["event"] != "forged"
