"""Compressed answers: none is asked for and none is unpacked, so a few bytes never fill our memory."""

import gzip
import hashlib
import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

import pytest

from payments.errors import OutcomeUnknown
from payments.providers.alipay import bill as alipay_bill
from payments.providers.base import TradeStatus
from payments.sandbox import keys
from tests.unit.payments.providers.conftest import NUMBER, Answer, Company, alipay_says, signed
from tests.unit.payments.providers.test_alipay_bill import PAYMENT, REFUND, packed, table
from tests.unit.payments.providers.test_transport import CHANNELS, genuine

DAY = date(2026, 11, 20)
UNPACKED_BYTES, LINES_BYTES = 160 * 2**20, 20 * 2**20
BOUND_BYTES = 8 * 2**20
BILL = "alipay.data.dataservice.bill.downloadurl.query"


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """Gzip in gzip."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        for _ in range(UNPACKED_BYTES // 2**20):
            file.write(bytes(2**20))
    twice = gzip.compress(packed.getvalue())
    assert len(twice) < 4096
    return twice


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


CALLS: dict[str, Callable[[Any], Any]] = {
    "query": lambda provider: provider.query(out_trade_no=NUMBER),
    "close": lambda provider: provider.close(out_trade_no=NUMBER),
    "bill": lambda provider: provider.bill(day=DAY),
}


ENCODINGS = ["gzip, gzip", "gzip", "GZIP", "x-gzip", "deflate", "br", "identity, gzip"]


@pytest.mark.parametrize(
    ("channel", "call", "encoding"),
    [
        *((channel, call, ENCODINGS[0]) for channel in CHANNELS for call in CALLS),
        *(("wechat", "query", encoding) for encoding in ENCODINGS[1:]),
    ],
)
def test_a_compressed_answer_is_none(
    providers: dict[str, Any], company: Company, bomb: bytes, channel: str, call: str, encoding: str
) -> None:
    company.answer = lambda _: (200, {"Content-Encoding": encoding}, bomb)
    with within_bounds(), pytest.raises(OutcomeUnknown, match="encoding"):
        CALLS[call](providers[channel])
    assert [headers["Accept-Encoding"] for _, headers in company.asked] == ["identity"]


@pytest.mark.parametrize("channel", CHANNELS)
def test_an_answer_may_be_called_uncompressed(providers: dict[str, Any], company: Company, channel: str) -> None:
    answer = genuine(channel)

    def said(body: bytes) -> Answer:
        status, headers, content = answer(body)
        return status, {**headers, "Content-Encoding": "Identity"}, content

    company.answer = said
    assert providers[channel].query(out_trade_no=NUMBER).status in {TradeStatus.PENDING, TradeStatus.NOT_FOUND}


def bill_of(company: Company, channel: str, file: Answer) -> None:
    """The bill is announced genuinely, and `file` is what is downloaded then."""
    address = f"{company.url}/v3/billdownload/file"
    announced = {
        "alipay": lambda: alipay_says(BILL, {"code": "10000", "bill_download_url": address}),
        "wechat": lambda: signed(
            {
                "hash_type": "SHA1",
                "hash_value": hashlib.sha1(file[2]).hexdigest(),
                "download_url": address,
            }
        ),
    }[channel]()
    company.answer = lambda body: file if company.here.path.startswith("/v3/billdownload") else announced(body)


@pytest.mark.parametrize("headers", [{"Content-Encoding": "gzip, gzip"}, {}], ids=["encoded", "as it is"])
@pytest.mark.parametrize("channel", ["wechat", "alipay"])
def test_a_compressed_bill_is_none(
    providers: dict[str, Any], company: Company, bomb: bytes, channel: str, headers: dict[str, str]
) -> None:
    bill_of(company, channel, (200, headers, bomb))
    with within_bounds(), pytest.raises(OutcomeUnknown):
        providers[channel].bill(day=DAY)
    assert {sent["Accept-Encoding"] for _, sent in company.asked} == {"identity"}
    assert len(company.asked) == 2


def zipped(piece: bytes, *, size: int, declared: int | None) -> bytes:
    """A file of a great many pieces; its directory may tell another size than it unpacks to."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("bill.csv", "w") as file:
        for _ in range(size // 2**20):
            file.write(piece * (2**20 // len(piece)))
    content = made.getvalue()
    if declared is None:
        return content
    entry = content.rindex(b"PK\x01\x02")
    return content[: entry + 24] + struct.pack("<I", declared) + content[entry + 28 :]


AT_MOST = alipay_bill.MAX_UNPACKED_BYTES


@pytest.mark.parametrize(
    ("piece", "size", "declared"),
    [
        (b" ", UNPACKED_BYTES, None),
        (b" ", UNPACKED_BYTES, 4096),
        (b" ", UNPACKED_BYTES, AT_MOST),
        (b"\n", LINES_BYTES, LINES_BYTES - 4096),
        (b'"\n', LINES_BYTES, LINES_BYTES - 4096),
    ],
    ids=repr,
)
def test_a_bill_s_own_zip_is_unpacked_within_bounds(
    providers: dict[str, Any], company: Company, piece: bytes, size: int, declared: int | None
) -> None:
    bill_of(company, "alipay", (200, {}, zipped(piece, size=size, declared=declared)))
    with within_bounds(), pytest.raises(OutcomeUnknown, match="bill"):
        providers["alipay"].bill(day=DAY)


def test_a_bill_of_too_many_lines_is_none(
    platform: keys.Keys, providers: dict[str, Any], company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = f"#账号：[{platform.settings['ALIPAY_SELLER_ID']}0156]\r\n#起始日期：[2026年11月20日 00:00:00]\r\n"
    file = packed(table(PAYMENT, REFUND, top=top))
    bill_of(company, "alipay", (200, {}, file))
    for most, fine in ((1000, True), (3, False)):
        monkeypatch.setattr(alipay_bill, "MAX_LINES", most)
        if fine:
            assert len(providers["alipay"].bill(day=DAY)) == 2
        else:
            with pytest.raises(OutcomeUnknown, match="bill"):
                providers["alipay"].bill(day=DAY)
