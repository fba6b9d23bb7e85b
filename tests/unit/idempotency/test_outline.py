"""What differs between two calls of one key, in words, from digests alone."""

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpRequest
from django.test import RequestFactory

from idempotency.observability.outline import CONTENT_MAX, differences, outline
from idempotency.request.fingerprint import canonical, canonical_value

PLACE = {"sku": "mug", "quantity": 2, "note": "a secret word"}


def posted(body: Any, path: str = "/orders", kind: str = "application/json") -> HttpRequest:
    return RequestFactory().post(path, body, content_type=kind)


def form(**fields: Any) -> HttpRequest:
    return RequestFactory().post("/orders", fields)


def file(content: bytes) -> SimpleUploadedFile:
    return SimpleUploadedFile("a.txt", content)


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
        (posted({"a\0\ud800": 1}), posted({"a\0\ud800": 2}), ["“a??” has another value"]),
    ],
)
def test_what_differs_is_named(first: HttpRequest, other: HttpRequest, words: list[str]) -> None:
    assert differences(outline(canonical(first)), outline(canonical(other))) == words


def test_a_functions_payload_too() -> None:
    first, other = (outline(canonical_value({"to": to})) for to in "ab")
    assert differences(first, other) == ["“to” has another value"]


def test_it_holds_no_value_and_is_small(settings: Any) -> None:
    written = json.dumps(outline(canonical(posted(PLACE))))
    assert not any(value in written for value in ("mug", "secret word", "orders"))
    settings.SECRET_KEY = "another secret of fifty characters, as the settings want it"
    assert json.dumps(outline(canonical(posted(PLACE)))) != written, "nobody can test guesses of a value"
    many = canonical(posted({str(number) + "n" * 60: 1 for number in range(90)}))
    assert len(many) < CONTENT_MAX
    assert len(json.dumps(outline(many))) < 3_500


def test_what_cannot_be_compared_says_so(settings: Any) -> None:
    first = outline(canonical(posted(PLACE)))
    assert differences({}, first) == ["not known: the log does not have the first call"]
    settings.SECRET_KEY = "another secret of fifty characters, as the settings want it"
    other = outline(canonical(posted(PLACE | {"quantity": 3})))
    assert differences(first, other) == ["not known: SECRET_KEY was changed between the two"]
