"""Parsing of the API's bodies: JSON in UTF-8 that we can store."""

import io
import json
import re
from collections.abc import Mapping
from typing import IO, Any

from django.utils.translation import gettext_noop as _
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from idempotency.errors import Problem

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class ShallowJSONParser(JSONParser):
    """REST framework's, with 400 instead of 500 for deep nesting and half of a surrogate pair.

    A charset that the request names is ignored: JSON has none (RFC 8259, section 11), and Python knows some that
    are not even of text.
    """

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the value. Raises ParseError (400); Problem 415 for a compressed body."""
        context = parser_context or {}
        if "request" in context:
            _refuse_encodings(context["request"].META.get("HTTP_CONTENT_ENCODING", ""))
        raw = stream.read()
        try:
            value = super().parse(io.BytesIO(raw), media_type, {**context, "encoding": "utf-8"})
        except RecursionError as error:
            raise ParseError("The JSON is nested too deeply.") from error
        if _SURROGATE.search(raw):  # only an escape can bring in half of a pair
            _refuse_surrogates(value)
        return value


def _refuse_encodings(encodings: str) -> None:
    """Refuse a compressed body. Source: RFC 9110, sections 8.4 and 12.5.3 (June 2022)."""
    if {encoding.strip().lower() for encoding in encodings.split(",")} - {"identity", ""}:
        detail = _("The body has a Content-Encoding that is not taken here; send it as it is.")
        raise Problem(415, "unsupported_media_type", detail, headers={"Accept-Encoding": "identity"})


def _refuse_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ParseError(_("A string of the JSON has half of a surrogate pair, which is no text.")) from error
