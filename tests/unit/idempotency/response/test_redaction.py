"""Values that must not be kept."""

import json

import pytest
from django.http import HttpResponse

from idempotency.response.answers import StoredResponse
from idempotency.response.redaction import MASK, redacted


def test_members_of_that_name_are_masked_at_any_depth() -> None:
    half_an_emoji = "\ud83d"
    body = json.dumps({"card": "4111", "items": [{"card": {"no": 1}, "sku": half_an_emoji}], "名": "值"}).encode()
    masked = json.loads(redacted(body, content_type="application/json; charset=utf-8", names=("card",)))
    assert masked == {"card": MASK, "items": [{"card": MASK, "sku": half_an_emoji}], "名": "值"}


def test_members_are_masked_as_deep_as_json_is_read() -> None:
    deep = b"[" * 600 + b'{"card": "4111"}' + b"]" * 600
    assert MASK.encode() in redacted(deep, content_type="application/json", names=("card",))


def test_an_answer_nested_too_deep_to_mask_is_stored_without_its_bytes() -> None:
    deep = b"[" * 200_000 + b'{"card": "4111"}' + b"]" * 200_000
    answer = HttpResponse(deep, content_type="application/json")
    assert StoredResponse.of(answer, max_bytes=1_000_000, redact=("card",)).body is None


@pytest.mark.parametrize(
    ("body", "content_type", "names"),
    [
        (b'{"a" : 1}', "application/json", ("card",)),
        (b'{"card": 1}', "application/json", ()),
        (b'{"card": 1}', "text/plain", ("card",)),
        (b'{"card": ', "application/problem+json", ("card",)),
    ],
)
def test_everything_else_keeps_its_bytes(body: bytes, content_type: str, names: tuple[str, ...]) -> None:
    assert redacted(body, content_type=content_type, names=names) == body
