"""A charset that is none of text is refused with 400 by both entry points of the shop."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from django.http import QueryDict

from shop import asgi, wsgi
from shop.platform.handlers import _OF_TEXT, text_encoding

Ask = Callable[..., httpx.Response]

NOT_OF_TEXT = ["hex", "rot13", "zip", "base64", "bz2", "uu", "quopri", "idna", "punycode", "undefined"]
NOT_OF_TEXT += ["utf-7", "unicode_escape", "raw_unicode_escape", "mbcs", "no-such-charset", "a\tb"]
ADDRESSES = ["/", "/products/mug", "/nowhere", "/accounts/login/", "/admin/login/", "/healthz", "/static/x.css"]
ADDRESSES += [
    "/api/v1/products",
    "/api/v1/nowhere",
    "/api/schema/",
    "/webhooks/wechat",
    "/webhooks/alipay",
    "/webhooks/stripe",
]


def by_wsgi(method: str, path: str, **sent: Any) -> httpx.Response:
    with httpx.Client(transport=httpx.WSGITransport(wsgi.application), base_url="http://testserver") as client:
        return client.request(method, path, **sent)


def by_asgi(method: str, path: str, **sent: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(asgi.application)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            return await client.request(method, path, **sent)

    return asyncio.run(ask())


@pytest.fixture(params=[by_wsgi, by_asgi], ids=["WSGI", "ASGI"])
def ask(request: pytest.FixtureRequest, transactional_db: None, caplog: pytest.LogCaptureFixture) -> Iterator[Ask]:
    """An entry point of the shop, which logs no error and no traceback."""
    yield request.param
    alarms = [one for one in caplog.get_records("call") if one.levelno >= logging.ERROR or one.exc_info]
    assert alarms == []


def test_each_charset_that_is_none_of_text(ask: Ask) -> None:
    for charset in NOT_OF_TEXT:
        sent = {"Content-Type": f"x/y; charset={charset}".encode()}
        assert ask("GET", "/?a=%ff", headers=sent).status_code == 400, charset


def test_every_address(ask: Ask) -> None:
    for address in ADDRESSES:
        for method, charset in (("GET", "hex"), ("POST", "idna")):
            sent = {"Content-Type": f"x; charset={charset}"}
            answer = ask(method, f"{address}?a=%ff", content=b"a=1", headers=sent)
            assert answer.status_code == 400, address
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert ("problem+json" in answer.headers["Content-Type"]) == address.startswith("/api/")


def test_a_parameter_in_a_charset_of_its_own(ask: Ask) -> None:
    for parameter in ("a*=hex''%41", "a*=idna''%ff", "charset*=zip''%41", "a*=nothing''%41"):
        answer = ask("GET", "/", headers={"Content-Type": f"text/plain; {parameter}"})
        assert answer.status_code in {200, 400}, parameter


@pytest.mark.parametrize(
    "head",
    [
        'Content-Disposition: form-data; name="a"\r\nContent-Type: text/plain; charset={charset}',
        'Content-Disposition: form-data; name="a"; filename="f"\r\nContent-Type: text/plain; charset={charset}',
        "Content-Disposition: form-data; name*={charset}''%ff",
        "Content-Disposition: form-data; name=\"a\"; filename*={charset}''%ff",
    ],
    ids=["field", "file", "name", "file's name"],
)
def test_parts_of_a_form(ask: Ask, head: str) -> None:
    for charset in ("hex", "idna", "nothing"):
        body = f"--x\r\n{head.format(charset=charset)}\r\n\r\n\u00ff\r\n--x--\r\n".encode()
        sent = {"Content-Type": "multipart/form-data; boundary=x"}
        for address in ("/accounts/login/", "/webhooks/alipay", "/i18n/setlang/"):
            assert ask("POST", address, content=body, headers=sent).status_code < 500
        whole = {"Content-Type": f"multipart/form-data; boundary=x; charset={charset}"}
        assert ask("POST", "/accounts/login/", content=body, headers=whole).status_code == 400


def test_a_form_in_another_encoding_than_utf_8(ask: Ask, settings: Any) -> None:
    """Django refuses to read it, and its error page reads it again."""
    for debug, charset in ((False, "gbk"), (True, "utf-16")):
        settings.DEBUG = debug
        kind = f"application/x-www-form-urlencoded; charset={charset}"
        sent = {"Content-Type": kind, "Cookie": f"csrftoken={'a' * 32}"}  # with it the form is read for its token
        for address in ("/", "/accounts/login/", "/admin/"):
            assert ask("POST", address, content=b"a=%ff", headers=sent).status_code == 400


def test_text_is_read_as_ever(ask: Ask) -> None:
    for charset in ("utf-8", "UTF8", '"utf-8"', "gbk", "GB18030", "iso-8859-1", "windows-1252"):
        sent = {"Content-Type": f"text/plain; charset={charset}"}
        assert ask("GET", "/api/schema/?format=json", headers=sent).status_code == 200


def test_every_encoding_of_text_reads_any_bytes() -> None:
    for encoding in sorted(_OF_TEXT):
        assert text_encoding(encoding)
        for value in QueryDict(b"a=%ff%00%80&a=\xff\x00&a=%2B2AA-&a=%5Cud800", encoding=encoding).getlist("a"):
            assert value.encode()
    assert text_encoding("utf-8\N{SNOWMAN}") is None
