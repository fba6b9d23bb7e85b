"""Some bytes for each reader in every run; `make fuzz` looks for longer."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sandbox import ROOT
from tests.system.fuzz.readers import READERS, SEEDS, key

TAKEN = set(READERS) - {"forged", "alipay_answer", "wechat_envelope", "alipay_zip"}


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_a_reader_takes_what_is_genuine(platform: Any, name: str) -> None:
    """Else its promises hold for nothing but refusals."""
    assert READERS[name](SEEDS[name][0]) is not None


def changed(seed: bytes, at: int, what: bytes, gone: int) -> bytes:
    at %= len(seed) + 1
    return seed[:at] + what + seed[at + gone :]


@pytest.mark.usefixtures("collector_off")
@pytest.mark.parametrize("name", sorted(READERS))
def test_a_reader_keeps_its_promises(platform: Any, name: str) -> None:
    pieces = st.binary(max_size=12) | st.sampled_from(
        [b"\\ud800", b"\\u0000", b"1e999", b"-", b"9" * 40, b"[" * 5000]
    )
    nearly = st.builds(changed, st.sampled_from(SEEDS[name]), st.integers(0, 600), pieces, st.integers(0, 8))

    @settings(
        max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(nearly | st.binary(max_size=200))
    def holds(data: bytes) -> None:
        READERS[name](data)

    holds()


def test_a_broken_promise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.system.fuzz.readers.parse_key", lambda header: header.strip('"')[:300])
    with pytest.raises(AssertionError):
        key(bytes(random.Random(7).choices(range(256), k=300)))


def test_some_runs_of_looking(tmp_path: Path) -> None:
    pytest.importorskip(
        "atheris", reason="no Atheris here; get it with: pip install -r requirements/dev.txt (Linux, x86-64)"
    )
    command = [sys.executable, "-m", "tests.system.fuzz", "--runs", "200", "key"]
    ended = subprocess.run(
        command,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(r"key: 200 runs, \d{3} tries: its promises hold\n", ended.stdout)
