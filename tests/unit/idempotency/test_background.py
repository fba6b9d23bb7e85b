"""The owner of background threads: one's fault ends no other, and none is left over."""

import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from idempotency.observability import background, metrics
from idempotency.observability.background import Worker

ROOT = Path(__file__).resolve().parents[3]


def failures(name: str) -> float:
    """How many have been counted for this thread."""
    counted: float = metrics.background_failures.labels(name)._value.get()
    return counted


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What came out of threads unhandled."""
    found: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    yield found
    assert found == []


@pytest.mark.usefixtures("reported")
def test_what_a_worker_meets_is_counted_and_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def work(worker: Worker) -> None:
        raise ValueError("unforeseen")

    before = failures("test-worker")
    worker = Worker("test-worker", work)
    with caplog.at_level(logging.INFO, "idempotency.observability.background"):
        worker.start()
        worker.join(30)
    assert failures("test-worker") == before + 1
    assert [record.getMessage() for record in caplog.records] == ["test-worker ended by ValueError: unforeseen"]
    assert background.stop() == []


def test_all_are_stopped_and_joined_and_what_they_meet_then_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    def work(worker: Worker) -> None:
        worker.stopping.wait()
        raise OSError("the connection was closed under it")

    workers = [Worker("test-worker", work) for _ in range(3)]
    for worker in workers:
        worker.start()
    assert background.stop(seconds=30) == []
    assert not any(worker.is_alive() for worker in workers)
    assert caplog.records == []


def test_nothing_else_starts_a_thread() -> None:
    """The sandbox is a process of its own; `testing/` runs in a project's tests alone."""
    begins = re.compile(r"\b(Thread|Timer|ThreadPoolExecutor|start_new_thread)\(|\(threading\.(Thread|Timer)\)")
    files = [file for app in ("idempotency", "payments", "shop") for file in (ROOT / app).rglob("*.py")]
    begun = {file.relative_to(ROOT) for file in files if begins.search(file.read_text(encoding="utf-8"))}
    others = [str(file) for file in begun if not {"sandbox", "testing"} & {*file.parts}]
    assert others == ["idempotency/observability/background.py"]
