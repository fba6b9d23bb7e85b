"""Which two requests are the same request."""

import json
from io import BytesIO
from typing import Any

import pytest
from django.core.exceptions import BadRequest
from django.test import RequestFactory, override_settings
from hypothesis import given, settings
from hypothesis import strategies as st
from rest_framework.parsers import FormParser, MultiPartParser
from rest_framework.request import Request

from idempotency.request.keys import canonical, fingerprint, matches

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)
factory = RequestFactory()


def posted(body: str | bytes, content_type: str = "application/json", path: str = "/orders?a=1") -> bytes:
    return canonical(factory.post(path, data=body, content_type=content_type))


def reordered(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: reordered(document[name]) for name in reversed(list(document))}
    return [reordered(item) for item in document] if isinstance(document, list) else document


@settings(max_examples=50)
@given(JSON)
def test_white_space_and_member_order_do_not_matter(document: Any) -> None:
    assert posted(json.dumps(document)) == posted(json.dumps(reordered(document), indent=3))


NAMED = st.recursive(
    st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["at", "id"]), inner),
    max_leaves=8,
)


def stripped(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: stripped(member) for name, member in document.items() if name != "at"}
    return [stripped(item) for item in document] if isinstance(document, list) else document


def ignoring(body: Any, ignore: Any) -> bytes:
    text = body if isinstance(body, str) else json.dumps(body)
    return canonical(factory.post("/orders", data=text, content_type="application/json"), ignore=ignore)


@settings(max_examples=50)
@given(NAMED, NAMED)
def test_ignored_members_do_not_matter_and_all_others_do(one: Any, other: Any) -> None:
    assert ignoring(one, ["at"]) == ignoring(stripped(one), ["at"]) == ignoring(stripped(one), ())
    assert (ignoring(one, ["at"]) == ignoring(other, ["at"])) == (stripped(one) == stripped(other))


def test_ignoring_keeps_the_spelling_of_numbers_and_leaves_a_body_that_is_no_json() -> None:
    assert ignoring('{"n": 1.0}', ["at"]) != ignoring('{"n": 1}', ["at"])
    for ignore in (["at"], lambda body: body["n"]):
        assert ignoring("{at", ignore) != ignoring("{at ", ignore)


def test_what_looks_alike_but_is_not() -> None:
    for one, other in (
        ('{"a":1}', '{"a":"1"}'),
        ('{"a":1}', '{"a":1.0}'),
        ('{"a":0.1}', '{"a":0.1000000000000000055}'),
        ('{"a":[1,2]}', '{"a":[2,1]}'),
        ('{"a":{"number":"1"}}', '{"a":1}'),
        ('{"a":1,"a":2}', '{"a":2}'),
        ("[", "[ "),
    ):
        assert posted(one) != posted(other)


def test_method_path_query_content_type_and_bytes_count() -> None:
    seen = {
        posted("{}"),
        posted("{}", path="/orders?a=2"),
        posted("{}", path="/order?a=1"),
        posted("{}", content_type="application/merge-patch+json"),
        posted(b"\x00\x01", content_type="application/octet-stream"),
        posted(b"\x00\x02", content_type="application/octet-stream"),
        canonical(factory.patch("/orders?a=1", data="{}", content_type="application/json")),
    }
    assert len(seen) == 7
    assert posted("{}") == posted("{}", content_type="application/json; charset=utf-8")


@pytest.mark.usefixtures("collector_off")
def test_deep_nesting_is_not_an_error() -> None:
    assert posted("[" * 100_000) == posted("[" * 100_000)


@pytest.mark.parametrize(
    "media_type",
    ["multipart/form-data; boundary=b", "application/x-www-form-urlencoded"],
    ids=["multipart", "urlencoded"],
)
@pytest.mark.parametrize("parsed", [False, True], ids=["by nobody", "by REST framework"])
def test_a_form_of_another_method_counts_too(media_type: str, parsed: bool) -> None:
    def sent(value: str) -> bytes:
        multipart = f'--b\r\nContent-Disposition: form-data; name="n"\r\n\r\n{value}\r\n--b--\r\n'
        body = multipart if "boundary" in media_type else f"n={value}"
        request = factory.put("/things", data=body, content_type=media_type)
        if parsed:
            assert Request(request, parsers=[MultiPartParser(), FormParser()]).data["n"] == value
        return canonical(request)

    assert sent("1") == sent("1") != sent("2")


def test_a_form_without_fields_that_was_read_is_no_error() -> None:
    request = factory.put("/things", data="--b--\r\n", content_type="multipart/form-data; boundary=b")
    assert not Request(request, parsers=[MultiPartParser()]).data
    assert canonical(request)


def decoding(request: Any, body: bytes) -> None:
    request._stream = BytesIO(body)


def decoding_and_read(request: Any, body: bytes) -> None:
    decoding(request, body)
    assert request.body == body


def replacing(request: Any, body: bytes) -> None:
    request._body = body


def replacing_what_was_read(request: Any, body: bytes) -> None:
    assert request.body
    request._body, request._stream = body, BytesIO(body)


@pytest.mark.parametrize(
    ("content_type", "headers"), [("application/json", {}), ("text/csv", {"Content-Encoding": "gzip"})]
)
@pytest.mark.parametrize("middleware", [decoding, decoding_and_read, replacing, replacing_what_was_read])
def test_a_body_that_a_middleware_made_shorter_is_not_cut(
    middleware: Any, content_type: str, headers: dict[str, str]
) -> None:
    request = factory.post("/orders?a=1", data=b"x" * 100, content_type=content_type, headers=headers)
    middleware(request, b"[7]")
    assert canonical(request) == posted(b"[7]", content_type)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_body_that_was_cut_is_refused_also_where_it_was_read_before(is_read: bool) -> None:
    form = "application/x-www-form-urlencoded"
    cut = {"wsgi.input": BytesIO(b"quantity=1"), "CONTENT_LENGTH": "12"}
    request = factory.post("/orders", data=b"quantity=100", content_type=form, **cut)
    if is_read:
        assert request.POST["quantity"] == "1"
    with pytest.raises(BadRequest, match=r"^The body ended after 10 of 12 bytes\.$"):
        canonical(request)


def test_a_rotated_secret_still_knows_its_requests() -> None:
    content = posted("{}")
    with override_settings(SECRET_KEY="old" * 20):
        stored = fingerprint(content)
    assert not matches(stored, fingerprint(content), content)
    with override_settings(SECRET_KEY_FALLBACKS=["old" * 20]):
        assert matches(stored, fingerprint(content), content)
