"""The F rows of docs/guarantees.md and the tests beside this one agree."""

import re
from pathlib import Path

HERE = Path(__file__).parent
TABLE = HERE.parents[2] / "docs" / "guarantees.md"


def test_every_row_has_one_test_and_every_test_its_row() -> None:
    _, failures = TABLE.read_text().split("## Failures of a keyed call")  # F11 above is a feature's number
    rows = re.findall(r"^(F\d\d) \|", failures, flags=re.MULTILINE)
    tests = [
        number.upper()
        for module in sorted(HERE.glob("test_*.py"))
        for number in re.findall(r"^def test_(f\d\d)_", module.read_text(), flags=re.MULTILINE)
    ]
    assert rows == [f"F{number:02}" for number in range(1, len(rows) + 1)]
    assert sorted(tests) == rows
