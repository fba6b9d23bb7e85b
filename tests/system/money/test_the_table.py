"""The M rows of docs/guarantees.md agree with the program; the package's guard guards."""

import re
from pathlib import Path

import pytest
from django.db import transaction

from payments.models import Anomaly
from payments.settlement.anomalies import REFUNDED_BY_POLICY
from tests.system.money.till import Till

HERE = Path(__file__).parent
TABLE = HERE.parents[2] / "docs" / "guarantees.md"
POLICIES = {"credit", "refund", "hold", "refuse", "close"}


def _rows() -> list[list[str]]:
    lines = re.findall(r"^(?:\| )?(M\d\d \|.*?)(?: \|)?$", TABLE.read_text(), flags=re.MULTILINE)
    return [[cell.strip() for cell in line.split(" | ")] for line in lines]


def test_policies_and_anomalies_are_those_of_the_program() -> None:
    kinds = set()
    for number, _, end in _rows():
        policy, _, anomaly = end.partition("; ")
        assert {word.strip() for word in policy.split(",")} <= POLICIES, number
        kinds |= set(re.findall(r"`(\w+)`", anomaly))
    assert kinds <= set(Anomaly.Kind.values)
    assert set(REFUNDED_BY_POLICY) <= kinds


def test_a_call_inside_a_transaction_is_noticed(till: Till, calls_in_a_transaction: list[str]) -> None:
    with transaction.atomic(), pytest.raises(AssertionError, match="inside a transaction"):
        till.sandbox.charges()
    assert len(calls_in_a_transaction) == 1
    calls_in_a_transaction.clear()
