"""The API's bodies: JSON in UTF-8, and a clear refusal of one that is nested too deeply for Python's reader."""

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser


class ShallowJSONParser(JSONParser):
    """As REST framework's, which lets the reader's RecursionError through: a kilobyte of ``[`` would be a 500.

    A charset that the request names is not asked either: JSON has none (RFC 8259, section 11), and Python knows
    some that are not even of text.
    """

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """The value. Raises ParseError, which becomes 400."""
        try:
            return super().parse(stream, media_type, {**(parser_context or {}), "encoding": "utf-8"})
        except RecursionError as error:
            raise ParseError("The JSON is nested too deeply.") from error
