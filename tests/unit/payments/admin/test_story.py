"""A payment in sentences, and its sums: a table of facts and what a person reads."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from payments.admin.case.story import Case, Charge, Disputed, Return, Trade, sentences, sums
from payments.states import AnomalyKind, AttemptStatus, RefundStatus

AT = datetime(2026, 11, 24, 5, 56, 14, tzinfo=UTC)


def charge(after: float = 0, **known: Any) -> Charge:
    given = {"account": "wechat", "amount_minor": 3980, "currency": "CNY", "at": AT + timedelta(seconds=after)}
    return Charge(**{**given, **known})


def back(after: float, status: RefundStatus = RefundStatus.SUCCEEDED, **known: Any) -> Return:
    at = AT + timedelta(seconds=after)
    given = {"account": "alipay", "amount_minor": 3980, "currency": "CNY", "status": status, "at": at}
    return Return(**{**given, **known})


def trade(status: AttemptStatus, **known: Any) -> Trade:
    given = {"account": "wechat", "amount_minor": 3980, "currency": "CNY", "status": status}
    return Trade(**{**given, "at": AT + timedelta(minutes=30), **known})


def dispute(status: str, **known: Any) -> Disputed:
    given = {"account": "stripe", "amount_minor": 3980, "currency": "CNY", "at": AT + timedelta(seconds=10)}
    return Disputed(**{**given, "status": status, "reason": "fraudulent", **known})


def case(**known: Any) -> Case:
    return Case(**{"amount_minor": 3980, "currency": "CNY", "opened_at": AT, **known})


def uncounted(kind: AnomalyKind | None, refund: Return | None, **known: Any) -> Charge:
    return charge(2, account="alipay", credited=False, kind=kind, back=refund, **known)


TWICE = (charge(), uncounted(AnomalyKind.PAID_TWICE, back(2.4)))
PAID = "Paid: 39.80 CNY by WeChat Pay at 05:56:14 UTC."
TABLE: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["Nothing was charged."]),
    ({"trades": (trade(AttemptStatus.CLOSED),)}, ["Nothing was charged."]),
    ({"charges": (charge(),)}, [PAID]),
    (
        {"charges": TWICE[::-1]},
        [PAID, "Charged twice: 39.80 CNY by Alipay at 05:56:16 UTC, refunded 0.4 s later."],
    ),
    (
        {"charges": (uncounted(AnomalyKind.AMOUNT_MISMATCH, back(9, RefundStatus.PROCESSING), amount_minor=5),)},
        [
            "Paid in another amount: 0.05 CNY instead of 39.80 CNY by Alipay at 05:56:16 UTC, the refund is on its way."
        ],
    ),
    (
        {
            "charges": (
                uncounted(AnomalyKind.PAID_AFTER_CLOSE, back(9, RefundStatus.FAILED, message="NOT_ENOUGH")),
            )
        },
        ["Paid too late: 39.80 CNY by Alipay at 05:56:16 UTC, the refund was refused (NOT_ENOUGH)."],
    ),
    (
        {"charges": (uncounted(AnomalyKind.PAID_TWICE, back(9, RefundStatus.UNCERTAIN)),)},
        [
            "Charged twice: 39.80 CNY by Alipay at 05:56:16 UTC, the refund has no answer yet and is asked about again."
        ],
    ),
    (
        {"charges": (uncounted(None, None),)},
        ["Received, not counted: 39.80 CNY by Alipay at 05:56:16 UTC, not refunded."],
    ),
    (
        {"charges": (charge(),), "returns": (back(90_000, amount_minor=500), back(60, RefundStatus.REQUESTED))},
        [
            PAID,
            "On its way back: 39.80 CNY by Alipay since 05:57:14 UTC.",
            "Refunded: 5.00 CNY by Alipay at 2026-11-25 06:56:14 UTC.",
        ],
    ),
    (
        {"returns": (back(1, RefundStatus.UNCERTAIN, due=AT), back(2, RefundStatus.FAILED, message="closed"))},
        [
            "Refund without an answer: 39.80 CNY by Alipay. It is asked again at 05:56:14 UTC; nothing moves twice.",
            "Refund refused: 39.80 CNY by Alipay. closed",
        ],
    ),
    (
        {"trades": (trade(AttemptStatus.UNCERTAIN, due=AT), trade(AttemptStatus.UNCERTAIN))},
        [
            "No answer: WeChat Pay may have charged 39.80 CNY. It is asked again at 05:56:14 UTC; nothing moves twice.",
            "No answer: WeChat Pay may have charged 39.80 CNY. It is not asked again by itself; record the outcome.",
        ],
    ),
    (
        {"trades": (trade(AttemptStatus.FAILED, message="limit"), trade(AttemptStatus.PENDING))},
        [
            "Refused: WeChat Pay did not open 39.80 CNY. limit",
            "Waiting for the shopper: 39.80 CNY by WeChat Pay until 06:26:14 UTC.",
        ],
    ),
    ({"charges": (charge(),), "trades": (trade(AttemptStatus.FAILED),)}, [PAID]),
    (
        {
            "charges": (charge(),),
            "disputes": (
                *(dispute("open", respond_by=AT + timedelta(days=10)), dispute("", amount_minor=0)),
                dispute("", amount_minor=-1990),
            ),
        },
        [
            PAID,
            "Disputed by Stripe at 05:56:24 UTC: open (fraudulent), 39.80 CNY is taken back."
            " To be answered by 2026-12-04 05:56:14 UTC.",
            "Disputed by Stripe at 05:56:24 UTC: - (fraudulent), 0.00 CNY is taken back.",
            "Returned by Stripe at 05:56:24 UTC: 19.90 CNY that it had taken back.",
        ],
    ),
]


@pytest.mark.parametrize(("known", "read"), TABLE)
def test_what_a_person_reads(known: dict[str, Any], read: list[str]) -> None:
    assert [sentence.text for sentence in sentences(case(**known))] == read


def test_what_is_over_is_no_alarm() -> None:
    assert [one.alarm for one in sentences(case(charges=TWICE, returns=(back(9),)))] == [False] * 3
    ended = (dispute("won", amount_minor=0), dispute("", amount_minor=-1990), dispute("lost"))
    assert [one.alarm for one in sentences(case(disputes=ended))] == [False, False, True]
    waits = case(charges=(uncounted(None, None),), trades=(trade(AttemptStatus.UNCERTAIN),))
    assert [one.alarm for one in sentences(waits)] == [True, True]


def test_times_are_utc_where_the_database_answers_in_another_zone() -> None:
    elsewhere = AT.astimezone(timezone(timedelta(hours=20)))  # the next day there
    assert [one.text for one in sentences(case(charges=(charge(at=elsewhere),)))] == [PAID]


def test_sums_add_up_in_each_currency() -> None:
    dollars = uncounted(None, back(9, RefundStatus.REQUESTED, currency="USD"), currency="USD")
    found = sums(case(charges=(*TWICE, dollars), returns=(back(60, amount_minor=500),)))
    assert [(one.currency, one.received_minor, one.refunded_minor, one.kept_minor) for one in found] == [
        ("CNY", 7960, 4480, 3480),
        ("USD", 3980, 0, 3980),
    ]
    assert [one.on_its_way_minor for one in found] == [0, 3980]
    (lost,) = sums(case(charges=(charge(),), disputes=(dispute("lost", amount_minor=1000),)))
    assert (lost.refunded_minor, lost.kept_minor) == (0, 2980)
