"""What differs between two calls of one key, in words, from digests alone."""

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpRequest
from django.test import RequestFactory

from idempotency.request import outline as outlines
from idempotency.request.keys import canonical
from idempotency.request.outline import CONTENT_MAX, differences

PLACE = {"sku": "mug", "quantity": 2, "note": "a secret word"}


def outline(content: bytes, digest: str = "of a key") -> dict[str, str]:
    return outlines.outline(content, digest=digest)


def posted(body: Any, path: str = "/orders", kind: str = "application/json") -> HttpRequest:
    return RequestFactory().post(path, body, content_type=kind)


def form(**fields: Any) -> HttpRequest:
    return RequestFactory().post("/orders", fields)


def file(content: bytes) -> SimpleUploadedFile:
    return SimpleUploadedFile("a.txt", content)


@pytest.mark.usefixtures("collector_off")
@pytest.mark.parametrize(
    ("first", "other", "words"),
    [
        (posted(PLACE), posted(PLACE | {"quantity": 3}), ["“quantity” has another value"]),
        (posted(PLACE), posted(PLACE | {"coupon": 1}), ["“coupon” is added"]),
        (posted(PLACE), posted({"sku": "mug", "quantity": 2}), ["“note” is left out"]),
        (posted(PLACE), posted(PLACE, "/orders?dry=1"), ["another query"]),
        (posted(PLACE, "/orders/1"), posted(PLACE, "/orders/2"), ["another path"]),
        (posted([1, 2]), posted([["ab"], ["cd"]]), ["another body"]),
        (posted(b"a", kind="text/plain"), posted(b"b", kind="text/xml"), ["another content type"]),
        (form(sku="mug", note="a"), form(sku="mug", note="b"), ["“note” has another value"]),
        (form(it=file(b"a")), form(it=file(b"b")), ["“it” has another value"]),
        (
            posted(b'{"object": [[7, 1], [["a", 8], 1]]}', kind="text/plain"),
            posted(b"x", kind="text/plain"),
            ["“7” is left out", "“['a', 8]” is left out"],
        ),
        (posted(b"[" * 5_000, kind="text/plain"), posted(b"x", kind="text/plain"), ["another body"]),
        (posted(["a" * CONTENT_MAX]), posted(["b" * CONTENT_MAX]), ["another body"]),
        (posted({"a\0\ud800": 1}), posted({"a\0\ud800": 2}), ["“a??” has another value"]),
    ],
)
def test_what_differs_is_named(first: HttpRequest, other: HttpRequest, words: list[str]) -> None:
    assert differences(outline(canonical(first)), outline(canonical(other))) == words


@pytest.mark.parametrize("most", [CONTENT_MAX, CONTENT_MAX - 1])
def test_a_content_type_that_is_cut_off_within_a_character_is_outlined(most: int) -> None:
    assert outline(canonical(posted(b"x", kind="\xe9" * 5_000))[:most]).keys() >= {"path", "type"}


def test_it_holds_no_value_and_is_small(settings: Any) -> None:
    sent = canonical(RequestFactory().post("/orders/01a2192308c87e948af48e661781d521/cancel", PLACE))
    written = json.dumps(outline(sent))
    assert "POST orders/<hexid:order_id>/cancel" in written
    assert not any(value in written for value in ("mug", "secret word", "01a2192308"))
    settings.SECRET_KEY = "another secret of fifty characters, as the settings want it"
    assert json.dumps(outline(sent)) != written, "nobody can test guesses of a value"
    names = [f"{number}{each * 60}" for each in ("n", "\U00020000") for number in range(90)]
    for chosen in names[:90], names[90:]:
        many = canonical(
            posted(json.dumps({"object": [[name, 1] for name in chosen]}, ensure_ascii=False), kind="a/b")
        )
        assert len(json.dumps(outline(many[:CONTENT_MAX]), ensure_ascii=False).encode()) < 4_000


def test_equal_values_of_two_keys_look_different() -> None:
    content = canonical(form(sku="mug"))
    mine, theirs = outline(content), outline(content, "of another")
    assert [name for name in mine if mine[name] in theirs.values()] == ["route"]


def test_what_cannot_be_compared_says_so(settings: Any) -> None:
    first = outline(canonical(posted(PLACE)))
    assert differences({}, first) == ["not known: the log does not have the first call"]
    settings.SECRET_KEY = "another secret of fifty characters, as the settings want it"
    other = outline(canonical(posted(PLACE | {"quantity": 3})))
    assert differences(first, other) == ["not known: SECRET_KEY was changed between the two"]
