"""The Idempotency-Key header: what is a key, what is not, which spellings are the same key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idempotency.errors import Problem
from idempotency.keys import digest_of, parse_key, scope_of

VISIBLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=255)


@given(VISIBLE.filter(lambda key: not key.startswith('"') and "," not in key))
def test_a_bare_key_is_itself(key: str) -> None:
    assert parse_key(key) == key


@given(VISIBLE)
def test_a_quoted_key_is_the_bare_key(key: str) -> None:
    quoted = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert parse_key(quoted) == key


@pytest.mark.parametrize("header", [None, "", "   "])
def test_no_key(header: str | None) -> None:
    with pytest.raises(Problem) as caught:
        parse_key(header)
    assert (caught.value.status, caught.value.code) == (400, "idempotency_key_missing")


@pytest.mark.parametrize(
    "header",
    [
        '""',
        '"abc',
        '"a"b"',
        '"abc";q=1',
        "a b",
        '"a b"',
        "schlüssel",
        "abc\xa0",  # what Python would strip, and HTTP does not
        "\x85abc",
        "\xa0",
        "a\tb",
        "k" * 256,
        '"' + "k" * 256 + '"',
        '"\\x"',
        "abc,abc",  # two lines, as servers join them
        "abc, abc",
        '"abc","abc"',
        'abc,"abc"',
    ],
)
def test_not_a_key(header: str) -> None:
    with pytest.raises(Problem) as caught:
        parse_key(header)
    assert (caught.value.status, caught.value.code) == (400, "idempotency_key_invalid")


def test_255_characters_are_allowed() -> None:
    assert parse_key("k" * 255) == "k" * 255


def test_space_around_the_header_is_not_part_of_the_key() -> None:
    assert parse_key("  abc ") == "abc"


def test_the_digest_keeps_scope_and_key_apart() -> None:
    scope = scope_of(principal="user:1", method="POST", route="orders")
    assert digest_of(scope=scope, key="a") != digest_of(scope=scope + " a", key="")
    assert len(digest_of(scope=scope, key="a")) == 64
