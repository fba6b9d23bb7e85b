"""Ids: version 7, ordered by time, 32 characters."""

import time
import uuid

from idempotency.ids import NOBODY, HexIdConverter, new_id


def test_an_id_is_a_uuid_of_version_7_with_the_time_in_front() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id()
    after = time.time_ns() // 1_000_000
    assert (made.version, made.variant, len(made.hex)) == (7, uuid.RFC_4122, 32)
    assert before <= made.int >> 80 <= after


def test_ids_do_not_repeat() -> None:
    assert len({new_id() for _ in range(1_000)}) == 1_000


def test_the_url_form_is_the_32_characters() -> None:
    made = new_id()
    converter = HexIdConverter()
    assert converter.to_url(made) == converter.to_url(made.hex) == made.hex
    for written in (made.hex, str(made), made.hex.upper()):
        assert converter.to_python(written) == made


def test_what_is_no_id_names_nothing() -> None:
    for word in ("1", "nowhere", "{" + str(uuid.uuid4()) + "}", "0" * 33, "é" * 32):
        assert HexIdConverter().to_python(word) == NOBODY
