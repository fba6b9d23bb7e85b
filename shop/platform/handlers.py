"""Django's handlers, with requests that are read in encodings of text alone.

Django takes every codec of Python for a charset. A codec that is none of text fails wherever the request is read
next, in the error page too, and Python searches for an unknown name and caches it for good.
"""

import encodings
import pkgutil
from encodings.aliases import aliases
from typing import Any

from django.core.exceptions import BadRequest
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.http import HttpRequest
from django.http.multipartparser import MultiPartParserError
from django.utils.http import parse_header_parameters

# Codecs from bytes to bytes or text to text, that ignore the error handler, or that make half of a surrogate pair.
# Source: Python 3.13, codecs, "Python Specific Encodings"
_BINARY = {"base64_codec", "bz2_codec", "hex_codec", "quopri_codec", "uu_codec", "zlib_codec"}
_NO_CHARSETS = {"idna", "mbcs", "oem", "punycode", "raw_unicode_escape", "rot_13", "undefined", "unicode_escape"}
_NOT_OF_TEXT = _BINARY | _NO_CHARSETS | {"utf_7", "aliases"}
_OF_TEXT = frozenset(module.name for module in pkgutil.iter_modules(encodings.__path__)) - _NOT_OF_TEXT


def text_encoding(charset: str) -> str | None:
    """Return Python's name of a text's charset, such as ``utf_8``, else None."""
    name = encodings.normalize_encoding(charset.strip().lower()) if charset.isascii() else ""
    name = aliases.get(name, name)
    return name if name in _OF_TEXT else None


class TextRequest(HttpRequest):
    """Mixin of Django's requests.

    Attributes:
        is_readable: the Content-Type can be read and names no charset but one of text. If not, the request is read
            as UTF-8, without content type, until `shop.platform.middleware.BodyMiddleware` refuses it.
    """

    is_readable = True

    def _set_content_type_params(self, meta: Any) -> None:
        """Replace Django's, which looks up any codec."""
        try:
            self.content_type, self.content_params = parse_header_parameters(meta.get("CONTENT_TYPE", ""))
            encoding = text_encoding(self.content_params.get("charset", "utf-8"))
        except (LookupError, ValueError):  # a parameter in a charset of its own (RFC 2231)
            encoding = None
        if encoding is None:
            self.is_readable, self.content_type, self.content_params = False, "", {}
        elif "charset" in (self.content_params or ()):
            self.encoding = encoding.replace("_", "-")

    def _load_post_and_files(self) -> None:
        """Load as Django does; a form not in UTF-8 is empty then, as its error page reads it."""
        try:
            super()._load_post_and_files()
        except BadRequest:
            self._mark_post_parse_error()  # type: ignore[attr-defined]  # the stubs lack it
            raise

    def parse_file_upload(self, META: Any, post_data: Any) -> Any:  # noqa: N803  Django's name
        """Parse as Django does; a part's bad charset becomes MultiPartParserError too, hence 400."""
        try:
            return super().parse_file_upload(META, post_data)
        except (LookupError, UnicodeError) as error:
            raise MultiPartParserError("A part names a charset that is none of text.") from error


class TextWSGIRequest(TextRequest, WSGIRequest):
    """A WSGI request in an encoding of text."""


class TextASGIRequest(TextRequest, ASGIRequest):
    """An ASGI request in an encoding of text."""


class TextWSGIHandler(WSGIHandler):
    request_class = TextWSGIRequest


class TextASGIHandler(ASGIHandler):
    request_class = TextASGIRequest
