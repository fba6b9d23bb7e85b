"""Differences as CSV, with no cell that a spreadsheet takes for a formula."""

import csv
import io
import re
from collections.abc import Iterable, Iterator

from payments.models import Difference

_LONG = re.compile(r"[0-9]{16,}|[0-9]+[eE][0-9]+")  # to a spreadsheet of 15 digits, or with an exponent
# what a spreadsheet may take for a formula: it looks past white space, and full-width signs are signs to some
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n]")

COLUMNS = (
    *("day", "channel", "merchant", "kind", "moved", "out_trade_no", "out_refund_no", "provider_txn_id"),
    *("theirs_minor", "ours_minor", "currency", "payment", "found_at", "resolved_at", "resolution"),
)


def export(
    differences: Iterable[Difference], *, headings: Iterable[object] = COLUMNS, every_digit: bool = False
) -> Iterator[str]:
    """Write differences as lines of CSV; with `every_digit`, long numbers end with a tab."""
    yield _csv_line(headings, every_digit)
    for one in differences:
        values = {name: getattr(one, name, None) for name in COLUMNS}
        values |= {name: getattr(one.comparison, name) for name in ("day", "channel", "merchant")}
        values["payment"] = one.payment_id.hex if one.payment_id else ""
        yield _csv_line(["" if values[name] is None else values[name] for name in COLUMNS], every_digit)


def _csv_line(cells: Iterable[object], every_digit: bool) -> str:
    written = io.StringIO()
    csv.writer(written).writerow(_safe(cell, every_digit) if isinstance(cell, str) else cell for cell in cells)
    return written.getvalue()


def _safe(cell: str, every_digit: bool) -> str:
    if _FORMULA.match(cell):
        return f"'{cell}"
    return f"{cell}\t" if every_digit and _LONG.fullmatch(cell) else cell
