"""The Idempotency-Key header: what is a key, what is not, which spellings are the same key."""

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idempotency.errors import Problem
from idempotency.request.keys import digest_of, is_hard_to_guess, parse_key, scope_of

VISIBLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=255)


@given(VISIBLE.filter(lambda key: not key.startswith('"') and "," not in key))
def test_a_bare_key_is_itself(key: str) -> None:
    assert parse_key(key) == key


@given(VISIBLE)
def test_a_quoted_key_is_the_bare_key(key: str) -> None:
    quoted = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert parse_key(quoted) == key


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
        "k" * 256,
        '"' + "k" * 256 + '"',
        '"\\x"',
        "abc,abc",  # two lines, as servers join them
    ],
)
def test_not_a_key(header: str) -> None:
    with pytest.raises(Problem) as caught:
        parse_key(header)
    assert (caught.value.status, caught.value.code) == (400, "idempotency_key_invalid")


@given(
    st.one_of(
        st.uuids(version=4).map(str),
        st.uuids(version=4).map(lambda key: key.hex.upper()),
        st.builds(lambda: secrets.token_urlsafe(16)),
        st.builds(lambda: secrets.token_hex(16)[1:]),
        st.sampled_from(["k9+Zx/4TqW2bLr8vYd1EuA==", "k9-Zx_4TqW2bLr8vYd1EuA=="]),  # either alphabet
    ).filter(lambda key: len(set(key)) > 9)  # hypothesis likes UUIDs of zeros
)
def test_random_keys_are_hard_to_guess(key: str) -> None:
    assert is_hard_to_guess(key)


@pytest.mark.parametrize(
    "key",
    [
        "k1",
        "pJ3kV0xWq8ZtR5nB1cYuA",  # 21 characters
        "0a1b2c3d4e5f60718293a4b5c6d7e8",  # 30 hexadecimal digits
        "20261124081607000000000001",
        "0123456789012345678901==",
        "a" * 64,
        "0123456789abcdef" * 2,
        "order-000000000000000000001",
        "00000000-0000-4000-8000-000000000001",
        "11111111-2222-4333-8444-555555555555",
        "8f3c2c5e 7f0b 4f57 9f0a 6f1a7f6e3b11",
        "user@example.com:order:17:payment",
    ],
)
def test_keys_that_can_be_guessed(key: str) -> None:
    assert not is_hard_to_guess(key)


def test_what_just_is_a_key() -> None:
    for header, key in (('"a,b"', "a,b"), ("k" * 255, "k" * 255), ("  abc ", "abc")):
        assert parse_key(header) == key


def test_the_digest_keeps_scope_and_key_apart() -> None:
    scope = scope_of(principal="user:1", method="POST", route="orders")
    assert digest_of(scope=scope, key="a") != digest_of(scope=scope + " a", key="")
    assert len(digest_of(scope=scope, key="a")) == 64
