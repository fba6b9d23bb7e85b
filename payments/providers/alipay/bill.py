"""Parser of Alipay's daily bill, its due time and the addresses it may come from. Pure.

A zip with two tables in GBK, the detail and its sums; comments begin with ``#``, values are padded with tabs,
amounts are yuan with two places. The file is unsigned: only the signed answer that names its address vouches for
it.

Source: Alipay open platform, "alipay.data.dataservice.bill.downloadurl.query" and "description of the bill's
fields" (read 2026-11).
"""

import csv
import io
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time
from typing import TextIO
from urllib.parse import SplitResult, urlsplit, urlunsplit

from payments import money
from payments.providers.alipay.facts import CURRENCY
from payments.providers.base import BillLine, FactKind
from payments.providers.documents import china_time

MAX_PACKED_BYTES = 32 * 2**20
MAX_UNPACKED_BYTES = 128 * 2**20
MAX_FILES = 16
# of what is unpacked: a line is read whole, and all lines are held at once
MAX_LINE_CHARACTERS = 128 * 2**10
MAX_LINES = 500_000

# made by nine in the morning as a rule; until then a bill that is missing may still come
DUE = time(12, 0)
MISSING = "BILL_NOT_EXIST"  # nothing moved, or not made yet

_TRADE_NO, _OUT_TRADE_NO, _TYPE = "支付宝交易号", "商户订单号", "业务类型"
_FINISHED, _AMOUNT, _REFUND_NO = "完成时间", "订单金额", "退款批次号/请求号"
_NEEDED = frozenset({_TRADE_NO, _OUT_TRADE_NO, _TYPE, _FINISHED, _AMOUNT, _REFUND_NO})
_KINDS = {"交易": FactKind.PAID, "退款": FactKind.REFUNDED}

_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, csv.Error, struct.error),
    *(EOFError, LookupError, OSError, OverflowError, RuntimeError),
)


def checked_address(url: str, *, gateway_url: str) -> str:
    """Return the bill's address: https, or at the gateway's own origin. Raises ValueError.

    Alipay gives addresses of a neighbour of its gateway with ``http``; those become https.
    """
    asked, gateway = urlsplit(url), urlsplit(gateway_url)
    if asked.username is not None or asked.password is not None or not asked.hostname:
        raise ValueError("the bill's address is none that we go to")
    if asked.scheme == "https" or _origin(asked) == _origin(gateway):
        return url
    neighbours = _domain(asked.hostname) == _domain(gateway.hostname or "")
    if asked.scheme == "http" and asked.port is None and gateway.scheme == "https" and neighbours:
        return urlunsplit(asked._replace(scheme="https"))
    raise ValueError(f"the bill's address is neither https nor at the gateway: {asked.scheme}://{asked.hostname}")


def read_bill(
    content: bytes, *, day: date, seller_id: str, max_unpacked_bytes: int = MAX_UNPACKED_BYTES
) -> tuple[BillLine, ...]:
    """Read the zip's detail table. Raises ValueError unless it is that seller's and day's."""
    try:
        with zipfile.ZipFile(io.BytesIO(content), metadata_encoding="gbk") as archive:
            _must_be_small(archive.infolist(), max_unpacked_bytes)
            tables = [_table(archive, member, day, seller_id) for member in archive.infolist()]
    except _UNREADABLE as error:
        raise ValueError(f"not a readable bill: {type(error).__name__}") from error
    details = [table for table in tables if table is not None]
    if not details:
        raise ValueError(f"no table of the bill has the columns {', '.join(sorted(_NEEDED))}")
    return tuple(line for table in details for line in table)


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _domain(host: str) -> list[str]:
    return host.split(".")[-2:]


def _must_be_small(members: list[zipfile.ZipInfo], most: int) -> None:
    """Bound what is unpacked by what the directory declares, so no bomb hides behind it."""
    if len(members) > MAX_FILES:
        raise ValueError(f"the bill has {len(members)} files")
    if sum(member.file_size for member in members) > most:
        raise ValueError(f"the bill would unpack to more than {most} bytes")
    if any(member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED} for member in members):
        raise ValueError("the bill is packed in a way that we do not unpack")


def _table(archive: zipfile.ZipFile, member: zipfile.ZipInfo, day: date, seller_id: str) -> list[BillLine] | None:
    """Read a detail table to its end, so that checksums count; None for another file."""
    with archive.open(member) as raw, io.TextIOWrapper(raw, encoding="gb18030", newline="") as text:
        rows = _without_comments(csv.reader(_bounded(text), strict=True), day, seller_id)
        names = [_column(name) for name in next(rows, [])]
        is_detail = frozenset(names) >= _NEEDED
        lines = []
        for values in rows:
            row = [value.strip() for value in values]
            if not is_detail or not any(row):
                continue
            if len(row) != len(names):
                raise ValueError(f"a line of the bill has {len(row)} values under {len(names)} names")
            lines.append(_line(dict(zip(names, row, strict=True))))
    return lines if is_detail else None


def _bounded(text: TextIO) -> Iterator[str]:
    """Yield the lines of `text`; raises ValueError at one that is too long, or one too many."""
    for _ in range(MAX_LINES):
        line = text.readline(MAX_LINE_CHARACTERS)
        if len(line) == MAX_LINE_CHARACTERS:
            raise ValueError(f"a line of the bill has more than {MAX_LINE_CHARACTERS} characters")
        if not line:
            return
        yield line
    raise ValueError(f"the bill has more than {MAX_LINES} lines")


def _without_comments(rows: Iterable[list[str]], day: date, seller_id: str) -> Iterator[list[str]]:
    """Drop comments by row, not by line: a product's name may hold a line that begins with #."""
    for row in rows:
        if row and row[0].startswith("#"):
            _must_be_announced(row[0], day, seller_id)
        else:
            yield row


def _must_be_announced(comment: str, day: date, seller_id: str) -> None:
    """Check account and day in the leading comments; another account's bill proves nothing."""
    account = _bracketed(comment, "账号")
    if account is not None and not account.startswith(seller_id):
        raise ValueError("the bill is another account's")
    begins = _bracketed(comment, "起始日期")
    if begins is not None and not begins.startswith(f"{day:%Y年%m月%d日}"):
        raise ValueError(f"the bill begins {begins}, not on {day}")


def _bracketed(comment: str, name: str) -> str | None:
    """Return the value in ``#name：[value]``; None for a comment about something else."""
    before, found, after = comment.partition(f"{name}：[")
    return after.partition("]")[0].strip() if found and before.strip("# \t") == "" else None


def _column(name: str) -> str:
    return name.strip().replace("（元）", "").replace("(元)", "")


def _line(row: Mapping[str, str]) -> BillLine:
    kind = _KINDS.get(row[_TYPE])
    if kind is None:
        raise ValueError(f"the bill has a line of a kind that we do not know: {row[_TYPE]!r}")
    is_refund = kind is FactKind.REFUNDED
    amount_minor = _amount(row[_AMOUNT], below_zero=is_refund)
    if amount_minor == 0 or not row[_TRADE_NO] or not row[_OUT_TRADE_NO]:
        raise ValueError("a line of the bill lacks its amount or a number")
    # a refund that was asked for without a number goes by the trade's
    out_refund_no = (row[_REFUND_NO] or row[_OUT_TRADE_NO]) if is_refund else ""
    return BillLine(
        kind=kind,
        out_trade_no=row[_OUT_TRADE_NO],
        provider_txn_id=out_refund_no or row[_TRADE_NO],
        out_refund_no=out_refund_no,
        amount_minor=amount_minor,
        currency=CURRENCY,
        occurred_at=china_time(row[_FINISHED]) if row[_FINISHED] else None,
    )


def _amount(text: str, *, below_zero: bool) -> int:
    if below_zero and not text.startswith("-"):
        raise ValueError(f"a refund's amount on the bill is not below zero: {text!r}")
    return money.from_decimal(text.removeprefix("-") if below_zero else text, CURRENCY)
