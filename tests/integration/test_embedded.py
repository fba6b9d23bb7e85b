"""Embedded servers: data survives, nothing outlives the starter, a killed start is mended by the next one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import redis

from shop.embedded import EmbeddedError, EmbeddedServers
from shop.guardian import alive

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(autouse=True)
def _no_given_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.delenv("REDIS_URL")


@pytest.fixture
def folder(open_folder: Path) -> Path:
    return open_folder


def until(condition: Callable[[], bool], seconds: float = 30) -> bool:
    """Poll `condition`; whether it came true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def processes_on(folder: Path) -> list[str]:
    """Commands of every process that names `folder`."""
    listed = subprocess.run(["ps", "-ww", "-eo", "command="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(folder) in line and "ps -ww" not in line]


def start_apart(folder: Path) -> subprocess.Popen[bytes]:
    """A starter in a process of its own, whose servers are up when this returns."""
    ready = folder / "ready"
    script = f"from pathlib import Path; import time; Path({str(ready)!r}).touch(); time.sleep(600)"
    starter = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "shop.embedded",
            "--fast",
            "--data-dir",
            str(folder),
            "--",
            sys.executable,
            "-c",
            script,
        ],
        cwd=ROOT,
    )
    assert until(ready.exists), "the servers did not come up"
    ready.unlink()
    return starter


def test_servers_start_stop_and_keep_their_data(folder: Path) -> None:
    for expected in (1, 2):
        with EmbeddedServers(folder) as servers:
            with psycopg.connect(servers.environment["DATABASE_URL"], autocommit=True) as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS visits (n serial)")
                connection.execute("INSERT INTO visits DEFAULT VALUES")
                version = connection.execute("SHOW server_version").fetchone()
                counted = connection.execute("SELECT count(*) FROM visits").fetchone()
            client = redis.Redis.from_url(servers.environment["REDIS_URL"])
            visits = client.incr("visits")
            client.close()
        assert version is not None
        assert version[0].startswith("18")
        assert counted == (expected,)
        assert visits == expected
        assert processes_on(folder) == []


def test_given_servers_are_used_and_none_is_started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/db")
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere")
    with EmbeddedServers(folder) as servers:
        assert servers.environment == {}
        assert processes_on(folder) == []


def test_a_second_starter_on_the_same_folder_is_told_so(folder: Path) -> None:
    with EmbeddedServers(folder, durable=False), pytest.raises(EmbeddedError, match="DATA_DIR"):
        EmbeddedServers(folder).start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_the_starter_nothing_stays_and_the_next_start_works(folder: Path, number: int) -> None:
    starter = start_apart(folder)
    assert any("postgres" in command for command in processes_on(folder))
    assert any("redis-server" in command for command in processes_on(folder))
    starter.send_signal(number)
    starter.wait()
    own_command = [str(folder / "ready")]  # the command that ran beside the servers is not theirs to stop
    assert until(lambda: [c for c in processes_on(folder) if own_command[0] not in c] == [])
    with EmbeddedServers(folder, durable=False) as servers:
        assert set(servers.environment) == {"DATABASE_URL", "REDIS_URL"}
    subprocess.run(["pkill", "-f", own_command[0]], check=False)


def test_when_even_the_guardian_is_killed_the_next_start_ends_what_is_left(folder: Path) -> None:
    starter = start_apart(folder)
    listed = subprocess.run(["pgrep", "-P", str(starter.pid)], capture_output=True, text=True, check=True).stdout
    guardian = next(
        int(pid) for pid in listed.split() if b"shop.guardian" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    os.kill(guardian, signal.SIGKILL)
    starter.kill()
    starter.wait()
    left = int((folder / "postgresql" / "postmaster.pid").read_text().splitlines()[0])
    assert alive(left)
    with EmbeddedServers(folder, durable=False):
        assert not alive(left)
    subprocess.run(["pkill", "-f", str(folder / "ready")], check=False)


def test_a_start_that_was_cut_off_inside_initdb_begins_again(folder: Path) -> None:
    half = folder / "postgresql.new"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    with EmbeddedServers(folder, durable=False) as servers:
        assert "DATABASE_URL" in servers.environment


def test_a_path_too_long_for_a_socket_is_no_obstacle(folder: Path) -> None:
    deep = folder / ("d" * 90)
    with (
        EmbeddedServers(deep, durable=False) as servers,
        psycopg.connect(servers.environment["DATABASE_URL"]) as connection,
    ):
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_that_cannot_start_tells_the_end_of_its_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shop.embedded._redis_binary", lambda: "/bin/false")
    with pytest.raises(EmbeddedError, match="Redis did not start"):
        EmbeddedServers(folder, durable=False).start()
    assert until(lambda: processes_on(folder) == [])
