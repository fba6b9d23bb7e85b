"""What makes two notifications the same: kept rows are compared by it, so it follows from what they say alone."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from typing import Any

import pytest

from payments.providers.base import Fact, FactKind, Notice, RefundResult, RefundStatus
from payments.providers.disputes import Dispute, DisputeStatus
from payments.webhooks.digest import digest_of

FACT = Fact(
    kind=FactKind.PAID,
    channel="wechat",
    merchant="1900000001",
    out_trade_no="a" * 32,
    provider_txn_id="4200\ud800",
    amount_minor=1990,
    currency="CNY",
    occurred_at=datetime(2026, 11, 20, 2, tzinfo=UTC),
)
OTHER: dict[str, Any] = {
    "kind": FactKind.REFUNDED,
    "amount_minor": 1991,
    "occurred_at": None,
    "paid_minor": 0,
    "dispute": Dispute(status=DisputeStatus.OPEN, reason="fraudulent"),
}


NEWS = RefundResult(status=RefundStatus.STUCK, message="ABNORMAL", out_refund_no="b" * 32)


def digest(*facts: Fact, event_type: str = "TRANSACTION.SUCCESS", refund: RefundResult | None = None) -> str:
    return digest_of(Notice(notification_id="n", event_type=event_type, facts=facts, refund=refund))


def test_it_does_not_follow_from_how_the_code_looks() -> None:
    """A change of it has every copy of a stored one read twice; nothing worse."""
    values = (
        '["TRANSACTION.SUCCESS", [["paid", "wechat", "1900000001", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",'
        ' "4200\\ud800", 1990, "CNY", "2026-11-20T02:00:00+00:00", "", "", null]]]'
    )
    assert digest(FACT) == sha256(values.encode()).hexdigest()
    in_china = replace(FACT, occurred_at=datetime(2026, 11, 20, 10, tzinfo=timezone(timedelta(hours=8))))
    assert digest(in_china) == digest(FACT)
    after_the_facts = f'["REFUND.ABNORMAL", [], ["stuck", "{"b" * 32}", "ABNORMAL"]]'
    assert digest(event_type="REFUND.ABNORMAL", refund=NEWS) == sha256(after_the_facts.encode()).hexdigest()


@pytest.mark.parametrize("name", [field.name for field in fields(Fact)])
def test_every_field_of_a_fact_counts(name: str) -> None:
    assert digest(replace(FACT, **{name: OTHER.get(name, "other")})) != digest(FACT)


@pytest.mark.parametrize("name", [field.name for field in fields(Dispute)])
def test_every_field_of_a_dispute_counts(name: str) -> None:
    said = Dispute(status=DisputeStatus.OPEN, reason="fraudulent")
    other = {"status": DisputeStatus.LOST, "respond_by": datetime(2026, 11, 27, tzinfo=UTC)}.get(name, "other")
    changed: Any = replace(said, **{name: other})  # type: ignore[arg-type]
    assert digest(replace(FACT, dispute=changed)) != digest(replace(FACT, dispute=said))


def test_its_kind_and_the_number_of_its_facts_count() -> None:
    values = [digest(FACT), digest(FACT, event_type="other"), digest(FACT, FACT), digest()]
    values += [digest(FACT, refund=NEWS), digest(refund=NEWS)]
    assert len(set(values)) == len(values)


# a notice has its facts itself; in the news of its refund there are none
@pytest.mark.parametrize("name", sorted({field.name for field in fields(RefundResult)} - {"facts"}))
def test_every_field_of_the_news_of_a_refund_counts(name: str) -> None:
    other = {"status": RefundStatus.FAILED}.get(name, "other\ud800")
    assert digest(refund=replace(NEWS, **{name: other})) != digest(refund=NEWS)  # type: ignore[arg-type]
