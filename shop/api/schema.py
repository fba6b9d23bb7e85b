"""The API's documentation beside the serializers: headers, problems, examples.

drf-spectacular calls the hooks `add_common_responses`, `name_ids`, `translate`; nothing here serves a request.
"""

import re
from typing import Any, Literal

from django.utils.translation import gettext
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, inline_serializer
from rest_framework import serializers

from idempotency.errors import PROBLEM_JSON
from shop.api.serializers import ProblemResponse

HEADER: Literal["header"] = "header"
EXAMPLE_KEY = "8f3c2c5e-7f0b-4f57-9f0a-6f1a7f6e3b11"
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255},
    HEADER,
    required=True,
    description="1..255 visible ASCII characters, a fresh random one per intent and the same one with every "
    "retry of it: the call happens once, a repeat gets the first answer again with `Idempotent-Replayed: true`. "
    "A one-time token in `Idempotency-Token` may take its place.",
    examples=[OpenApiExample("a random UUID", value=EXAMPLE_KEY)],
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    HEADER,
    required=True,
    description="The ETag of the order that the change was decided on.",
    examples=[OpenApiExample("version 1", value='"1"')],
)
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", str, HEADER, description="The ETag that the caller holds; 304 if the order is still at it."
)
ETAG = OpenApiParameter("ETag", str, HEADER, response=[200, 201, 202], description="The version in quotes.")
REPLAYED = OpenApiParameter(
    "Idempotent-Replayed",
    {"type": "string", "enum": ["true"]},
    HEADER,
    response=True,
    description="There when the answer is that of an earlier call with the same key.",
)
LOCATION = OpenApiParameter(
    "Location",
    OpenApiTypes.URI_REF,
    HEADER,
    response=[201, 202],
    description="Where the new resource can be read.",
)
LAST_EVENT_ID = OpenApiParameter(
    "Last-Event-ID",
    str,
    HEADER,
    description="The `id` of the last event that the caller has; the present state is sent if it is another.",
)
# the framework adds it where a view has more than one kind of answer; none of ours is chosen by it
NO_FORMAT = OpenApiParameter("format", exclude=True)

# a reader's order, and the page's
TAGS = ("orders", "payments", "products", "flash-sales", "coupons", "idempotency-keys", "idempotency-tokens")
_ALWAYS = {401: "not_authenticated", 406: "not_acceptable", 429: "throttled", 503: "service_unavailable"}
_UNSAFE = {403: "permission_denied", 413: "payload_too_large"}  # the first to a session without its CSRF token
_WITH_BODY = {400: "malformed", 415: "unsupported_media_type"}
_KEY = {
    400: "idempotency_key_missing, idempotency_key_invalid",
    409: "idempotency_in_progress, token_unknown",
    410: "idempotency_result_expired",
    422: "idempotency_key_reused",
}


def responses(success: dict[int, Any], problems: dict[int, str], *, keyed: bool = False) -> dict[Any, Any]:
    """Describe the `responses` of a call; `add_common_responses` adds those of every call.

    Args:
        success: status -> serializer, response or None for an empty body.
        problems: status -> the `code` words that it may carry, joined with commas.
        keyed: adds the key's own problems.
    """
    codes, more = dict(problems), _KEY if keyed else {}
    for status, words in more.items():
        codes[status] = f"{codes[status]}, {words}" if status in codes else words
    documented: dict[Any, Any] = dict(success)
    for status, words in sorted(codes.items()):
        documented[status, PROBLEM_JSON] = OpenApiResponse(ProblemResponse, _codes(words.split(", ")))
    return documented


def _codes(words: list[str]) -> str:
    return "code: " + ", ".join(f"`{word}`" for word in dict.fromkeys(words))


def add_common_responses(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the problems of calls: of all, unsafe ones, those with a body or a key. A hook."""
    result["tags"] = [{"name": name} for name in TAGS]
    for operations in result["paths"].values():
        for method, operation in operations.items():
            keyed = any(sent["name"] == "Idempotency-Key" for sent in operation.get("parameters", ()))
            kinds = [_ALWAYS]
            if method != "get":
                kinds.append(_UNSAFE)
            if keyed or "requestBody" in operation:
                kinds.append(_WITH_BODY)
            if keyed:
                kinds.append(_KEY)
            found = operation["responses"]
            for kind in kinds:
                for status, words in kind.items():
                    _add(found.setdefault(str(status), {"description": ""}), words)
            operation["responses"] = dict(sorted(found.items()))
            for status, response in operation["responses"].items():
                if status >= "400":
                    document = {"schema": {"$ref": "#/components/schemas/ProblemResponse"}}
                    response.setdefault("content", {PROBLEM_JSON: document})
                if status in {"429", "503"}:
                    response.setdefault("headers", {})["Retry-After"] = _RETRY_AFTER
    return result


def name_ids(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Name the order's or payment's own id `id`, as the contract does. A hook.

    The routes keep their names, which stand in the scopes of stored keys.
    """
    for operations in result["paths"].values():
        for operation in operations.values():
            for sent in operation.get("parameters", ()):
                sent["name"] = _OWN_ID.sub("id", sent["name"])
    result["paths"] = {_OWN_ID.sub("id", path): operations for path, operations in result["paths"].items()}
    return result


def translate(result: Any, **_: Any) -> Any:
    """Translate what the description says, line by line, docstrings too. A hook."""
    if isinstance(result, list):
        return [translate(one) for one in result]
    if not isinstance(result, dict):
        return result
    # a copy: parts of it are constants of this module
    return {
        name: "\n".join(line and gettext(line) for line in one.split("\n"))
        if name in {"summary", "description", "detail"} and isinstance(one, str)
        else translate(one)
        for name, one in result.items()
    }


_OWN_ID = re.compile(r"\b(order|payment)_id\b")
_RETRY_AFTER = {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds."}


def _add(response: dict[str, Any], words: str) -> None:
    response["description"] = _codes([*re.findall(r"`(\w+)`", response["description"]), *words.split(", ")])


def page_of(item: type[serializers.Serializer[Any]]) -> Any:
    """Describe a page of a cursor-paged list of `item`."""
    return inline_serializer(
        f"{item.__name__.removesuffix('Response')}Page",
        {
            "next": serializers.URLField(allow_null=True, help_text="address of the next (older) page"),
            "previous": serializers.URLField(allow_null=True, help_text="address of the page before (newer)"),
            "results": item(many=True),
        },
    )


# an event of a stream, as the browser's EventSource delivers it
EVENT = {
    "type": "object",
    "properties": {
        "event": {"const": "status"},
        "id": {"type": "string", "description": "for `Last-Event-ID`"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
ORDER_REQUEST_EXAMPLE = OpenApiExample(
    "two mugs", value={"items": [{"sku": "mug", "quantity": 2}]}, request_only=True
)
