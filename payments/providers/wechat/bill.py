"""Parser of WeChat Pay's daily trade bill. Pure.

A table in UTF-8: Chinese column names, a line for each payment and refund, names of the summary, the summary.
Every value begins with a backtick, so that spreadsheets don't turn numbers into floats; amounts are decimals in
yuan. Columns vary with the merchant's settings, so they are found by name.

Source: WeChat Pay, "trade bill file format", and API v3, "apply for trade bill" (read 2026-11).
"""

from collections.abc import Mapping
from datetime import time

from payments import money
from payments.providers.base import BillLine, FactKind, RefundStatus
from payments.providers.documents import china_time

SUMMARY = "总交易单数"

TIME, STATE, CURRENCY = "交易时间", "交易状态", "货币种类"
TRANSACTION_ID, OUT_TRADE_NO = "微信订单号", "商户订单号"
REFUND_ID, OUT_REFUND_NO, REFUND_STATE = "微信退款单号", "商户退款单号", "退款状态"
# what the order cost and what was asked back: `amount.total` and `amount.refund` of the API. The columns of what
# is settled (应结订单金额, 退款金额) are less where coupons took part.
ORDER_AMOUNT, REFUND_AMOUNT = "订单金额", "申请退款金额"
_NEEDED = (
    *(TIME, STATE, CURRENCY, TRANSACTION_ID, OUT_TRADE_NO),
    *(REFUND_ID, OUT_REFUND_NO, REFUND_STATE, ORDER_AMOUNT, REFUND_AMOUNT),
)
_FREE_TEXT = ("商品名称", "商户数据包")
# a payment-code payment that the till took back; our methods have no such thing
_REVOKED = "REVOKED"
_REFUND_STATES = {
    "SUCCESS": RefundStatus.SUCCEEDED,
    "PROCESSING": RefundStatus.PROCESSING,
    "CHANGE": RefundStatus.STUCK,  # `ABNORMAL` of the API
}
# bills are made from nine in the morning on, and all are there by ten; one that is missing then is empty
DUE = time(10, 0)


def parse(content: bytes) -> tuple[BillLine, ...]:
    """Parse a bill's lines, in order.

    The platform lists a refund once, on the day it accepts it, in the state of that moment. One under way
    (PROCESSING, CHANGE) keeps that in `refund_status`; one that failed (FAIL) moved nothing and is left out.

    Raises:
        ValueError: not a whole bill of the documented format, or a line that cannot be understood.
    """
    lines = [line.rstrip("\r") for line in content.decode("utf-8-sig").split("\n")]
    names = lines[0].split(",")
    if missing := [name for name in _NEEDED if name not in names]:
        raise ValueError(f"the bill has no column {', '.join(missing)}")
    end, count = _summary(lines)
    rows = [_row(line, names) for line in lines[1:end]]
    if count != str(len(rows)):
        raise ValueError(f"the bill has {len(rows)} lines, its summary says {count}")
    read = [_bill_line(row) for row in rows]
    return tuple(line for line in read if line is not None)


def _summary(lines: list[str]) -> tuple[int, str | None]:
    """Return the summary's place and count of lines; without one the bill is not whole."""
    end = next((at for at, line in enumerate(lines) if line.startswith(SUMMARY)), None)
    if end is None or end + 1 >= len(lines):
        raise ValueError("the bill has no summary, so it is not whole")
    return end, dict(zip(lines[end].split(","), _values(lines[end + 1]), strict=False)).get(SUMMARY)


def _values(line: str) -> list[str]:
    if not line.startswith("`"):
        raise ValueError("a line of values does not begin with a backtick")
    return line[1:].split(",`")


def _row(line: str, names: list[str]) -> dict[str, str]:
    """Map values to columns.

    A description may hold the separator. Values before the free texts are counted from the left and those after
    them from the right, so no description can shift the amounts.
    """
    values = _values(line)
    more = len(values) - len(names)
    free = [at for at, name in enumerate(names) if name in _FREE_TEXT]
    if more < 0 or (more and not free):
        raise ValueError(f"a line has {len(values)} values for {len(names)} columns")
    return {name: values[at if not free or at < free[0] else at + more] for at, name in enumerate(names)}


def _bill_line(row: Mapping[str, str]) -> BillLine | None:
    """Build a line; None where no money of ours moved."""
    if row[STATE] not in ("SUCCESS", "REFUND", _REVOKED):
        raise ValueError(f"unknown trade state {row[STATE]!r}")
    refunded = row[STATE] == "REFUND"
    refund_status = _REFUND_STATES.get(row[REFUND_STATE]) if refunded else RefundStatus.SUCCEEDED
    if row[STATE] == _REVOKED or refund_status is None:
        return None
    amount_minor = money.from_decimal(row[REFUND_AMOUNT if refunded else ORDER_AMOUNT], row[CURRENCY])
    if amount_minor <= 0:
        raise ValueError("a line moves no money")
    return BillLine(
        kind=FactKind.REFUNDED if refunded else FactKind.PAID,
        out_trade_no=_number(row, OUT_TRADE_NO),
        provider_txn_id=_number(row, REFUND_ID if refunded else TRANSACTION_ID),
        out_refund_no=_number(row, OUT_REFUND_NO) if refunded else "",
        amount_minor=amount_minor,
        currency=row[CURRENCY],
        occurred_at=china_time(row[TIME]) if row[TIME] else None,
        refund_status=refund_status,
    )


def _number(row: Mapping[str, str], name: str) -> str:
    value = row[name]
    if not value or value == "0":  # how the bill writes that there is none
        raise ValueError(f"{name} is missing")
    return value
