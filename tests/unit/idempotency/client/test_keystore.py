"""One key per intent: in memory and in a file, through threads, processes and kill -9."""

import multiprocessing
import re
import signal
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from idempotency.client import FileKeys, IntentBoundElsewhere, Keys, MemoryKeys
from idempotency.client.keystore import new_key
from tests.unit.idempotency.client.processes import meet_at, obtain_together, send_and_die

TARGET = "POST http://x/orders"
spawn = multiprocessing.get_context("spawn")


@pytest.fixture
def now() -> list[float]:
    """What the clock of `keys` says, alone."""
    return [1_000_000.0]


@pytest.fixture(params=["memory", "file"])
def keys(request: pytest.FixtureRequest, tmp_path: Path, now: list[float]) -> Keys:
    clock: Callable[[], float] = lambda: now[0]  # noqa: E731
    return MemoryKeys(clock=clock) if request.param == "memory" else FileKeys(tmp_path / "keys", clock=clock)


def test_a_key_is_a_quoted_string_of_its_own() -> None:
    made = {new_key() for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch(r'"[0-9a-f-]{36}"', key) for key in made)


def test_an_intent_is_bound_to_its_key_and_target_until_it_is_forgotten(keys: Keys) -> None:
    key = keys.obtain("invoice-17", target=TARGET)
    with pytest.raises(IntentBoundElsewhere, match=r"invoice-17.*POST http://x/orders.*PUT http://x/orders"):
        keys.obtain("invoice-17", target="PUT http://x/orders")
    assert keys.obtain("invoice-17", target=TARGET) == key
    assert keys.obtain("invoice-18", target=TARGET) != key
    assert [keys.forget("invoice-17") for _ in range(2)] == [True, False]
    assert keys.obtain("invoice-17", target="PUT http://x/other") != key


def test_pruning_goes_by_the_last_use(keys: Keys, now: list[float]) -> None:
    old, used = keys.obtain("old", target=TARGET), keys.obtain("used", target=TARGET)
    now[0] += 100
    keys.obtain("used", target=TARGET)
    assert keys.prune(older_than_seconds=100) == 0
    now[0] += 1
    assert keys.prune(older_than_seconds=100) == 1
    assert keys.obtain("used", target=TARGET) == used
    assert keys.obtain("old", target=TARGET) != old


def test_a_file_opened_again_by_a_relative_path_knows_its_keys_and_is_its_owner_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = FileKeys("a #?%20 file")
    monkeypatch.chdir("/")
    assert keys.obtain("i", target=TARGET) == FileKeys(tmp_path / "a #?%20 file").obtain("i", target=TARGET)
    assert (tmp_path / "a #?%20 file").stat().st_mode & 0o777 == 0o600


def test_a_file_of_something_else_is_left_alone_and_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("someone's notes " * 100)
    with pytest.raises(sqlite3.DatabaseError):
        FileKeys(tmp_path / "keys")
    assert (tmp_path / "keys").read_text() == "someone's notes " * 100
    with pytest.raises(FileNotFoundError):
        FileKeys(tmp_path / "no" / "keys")


def test_a_locked_file_is_an_error_and_no_key(tmp_path: Path) -> None:
    keys = FileKeys(tmp_path / "keys", busy_timeout_seconds=0)
    with closing(sqlite3.connect(tmp_path / "keys", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            keys.obtain("invoice-17", target=TARGET)
        other.execute("ROLLBACK")
    assert keys.forget("invoice-17") is False


def test_any_text_is_an_intent_of_its_own(tmp_path: Path) -> None:
    keys, intents = (
        FileKeys(tmp_path / "keys"),
        ["a", "A", "a ", "à", "a\u0300", "文", "\0", "a\0", "'; --", "a" * 9_999],
    )
    first = [keys.obtain(intent, target=TARGET) for intent in intents]
    assert len(set(first)) == len(intents)
    assert [keys.obtain(intent, target=TARGET) for intent in intents] == first


@pytest.mark.parametrize("store", ["memory", "one file object", "a file object each"])
def test_threads_that_race_get_one_key(store: str, tmp_path: Path) -> None:
    shared = MemoryKeys() if store == "memory" else FileKeys(tmp_path / "keys")
    open_store: Callable[[], Keys] = lambda: FileKeys(tmp_path / "keys")  # noqa: E731
    barrier = threading.Barrier(8)

    def racer(_: int) -> str:
        barrier.wait()
        keys = open_store() if store == "a file object each" else shared
        return keys.obtain("invoice-17", target=TARGET)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(racer, range(8)))) == 1


def test_processes_that_race_get_one_key(tmp_path: Path) -> None:
    intents = [f"invoice-{number}" for number in range(10)]
    with ProcessPoolExecutor(2, spawn, meet_at, (spawn.Barrier(2),)) as pool:
        first, second = pool.map(obtain_together, [tmp_path / "keys"] * 2, [intents] * 2)
    assert first == second
    assert len(set(first)) == len(intents)


def test_the_key_outlives_kill_9_at_the_moment_of_sending(tmp_path: Path) -> None:
    receiver, sender = spawn.Pipe(duplex=False)
    sent = []
    for _ in range(2):
        process = spawn.Process(target=send_and_die, args=(tmp_path / "keys", "invoice-17", sender))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        process.close()
        sent.append(receiver.recv())
    sender.close()
    receiver.close()
    assert sent == [FileKeys(tmp_path / "keys").obtain("invoice-17", target="POST http://x/")] * 2
