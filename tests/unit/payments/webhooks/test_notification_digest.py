"""The digest of a notification: it follows from what the notification says alone."""

from collections.abc import Callable
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


DISPUTE = Dispute(status=DisputeStatus.OPEN, reason="fraudulent")


NEWS = RefundResult(status=RefundStatus.STUCK, message="ABNORMAL", out_refund_no="b" * 32)


def digest(*facts: Fact, event_type: str = "TRANSACTION.SUCCESS", refund: RefundResult | None = None) -> str:
    return digest_of(Notice(notification_id="n", event_type=event_type, facts=facts, refund=refund))


OTHERS: dict[type, dict[str, Any]] = {
    Fact: {
        **{"kind": FactKind.REFUNDED, "amount_minor": 1991, "occurred_at": None, "paid_minor": 0},
        "dispute": DISPUTE,
    },
    Dispute: {"status": DisputeStatus.LOST, "respond_by": datetime(2026, 11, 27, tzinfo=UTC)},
    RefundResult: {"status": RefundStatus.FAILED},
}


DIGESTS: list[tuple[Any, Callable[[Any], str]]] = [
    (FACT, digest),
    (DISPUTE, lambda dispute: digest(replace(FACT, dispute=dispute))),
    (NEWS, lambda news: digest(refund=news)),
]


@pytest.mark.parametrize(("said", "digested"), DIGESTS, ids=["a fact", "a dispute", "news of a refund"])
def test_every_field_counts(said: Any, digested: Callable[[Any], str]) -> None:
    names = {field.name for field in fields(said)} - ({"facts"} if said is NEWS else set())
    others = {name: OTHERS[type(said)].get(name, "other\ud800") for name in names}
    values = [digested(said), *(digested(replace(said, **{name: other})) for name, other in others.items())]
    assert len(set(values)) == len(names) + 1


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


def test_its_kind_and_the_number_of_its_facts_count() -> None:
    values = [digest(FACT), digest(FACT, event_type="other"), digest(FACT, FACT), digest()]
    values += [digest(FACT, refund=NEWS), digest(refund=NEWS)]
    assert len(set(values)) == len(values)
