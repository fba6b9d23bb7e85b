"""Compressed answers: none is asked for and none is unpacked, so none fills our memory."""

import gzip
import io
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from payments.errors import OutcomeUnknown
from payments.providers.alipay import bill as alipay_bill
from payments.providers.base import TradeStatus
from tests.unit.payments.providers.conftest import NUMBER, Company
from tests.unit.payments.providers.test_alipay_bill import SELLER
from tests.unit.payments.providers.test_answers import CALLS, DAY
from tests.unit.payments.providers.test_transport import CHANNELS, genuine

UNPACKED_BYTES = 20 * 2**20
BOUND_BYTES = 8 * 2**20


@pytest.fixture(scope="module")
def bomb() -> bytes:
    return gzip.compress(gzip.compress(bytes(UNPACKED_BYTES)))


@contextmanager
def within_bounds() -> Iterator[None]:
    """Fails where what is inside has taken more memory at once than any answer may."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < BOUND_BYTES


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("channel", CHANNELS)
def test_a_compressed_answer_is_none(
    providers: dict[str, Any], company: Company, bomb: bytes, channel: str, call: str
) -> None:
    for encoding in ("gzip, gzip", "identity, gzip", "br"):
        company.answer = lambda _, encoding=encoding: (200, {"Content-Encoding": encoding}, bomb)
        with within_bounds(), pytest.raises(OutcomeUnknown, match="encoding"):
            CALLS[call](providers[channel])
    assert [headers["Accept-Encoding"] for _, headers in company.asked] == ["identity"] * 3


def test_an_answer_may_be_called_uncompressed(providers: dict[str, Any], company: Company) -> None:
    status, headers, content = genuine("wechat")(b"")
    company.answer = lambda _: (status, {**headers, "Content-Encoding": "Identity"}, content)
    assert providers["wechat"].query(out_trade_no=NUMBER).status is TradeStatus.PENDING


def zipped(piece: bytes, *, declared: int | None) -> bytes:
    """A file of a great many pieces; its directory may name another size than it unpacks to."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bill.csv", piece * (UNPACKED_BYTES // len(piece)))
    content = made.getvalue()
    if declared is None:
        return content
    entry = content.rindex(b"PK\x01\x02")
    return content[: entry + 24] + struct.pack("<I", declared) + content[entry + 28 :]


@pytest.mark.parametrize(
    ("piece", "declared", "most", "why"),
    [
        (b" ", None, UNPACKED_BYTES - 1, "would unpack to more than"),
        (b" ", 4096, UNPACKED_BYTES, "not a readable bill"),
        (b" ", UNPACKED_BYTES - 1, UNPACKED_BYTES, "characters"),
        (b'"\n', UNPACKED_BYTES - 4096, UNPACKED_BYTES, "more than 20000 lines"),
    ],
    ids=repr,
)
def test_a_bill_s_own_zip_is_unpacked_within_bounds(
    monkeypatch: pytest.MonkeyPatch, piece: bytes, declared: int | None, most: int, why: str
) -> None:
    content = zipped(piece, declared=declared)
    monkeypatch.setattr(alipay_bill, "MAX_LINES", 20_000)
    with within_bounds(), pytest.raises(ValueError, match=why):
        alipay_bill.read_bill(content, day=DAY, seller_id=SELLER, max_unpacked_bytes=most)
