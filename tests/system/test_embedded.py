"""Embedded servers: data survive, nothing outlives the starter, a killed start is mended."""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from shop.devserver.embedded import EmbeddedError, EmbeddedServers
from tests import readymade
from tests.running import until
from tests.sandbox import ROOT


@pytest.fixture(autouse=True)
def _no_given_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.delenv("REDIS_URL")


@pytest.fixture
def used(open_folder: Path) -> Path:
    """A folder that has servers' data: what happens at a first start is not the point."""
    readymade.lay_out(open_folder)
    return open_folder


def processes_on(folder: Path) -> list[psutil.Process]:
    """Every process that names `folder` in its command, or works in it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            inside = str(folder) in f"{' '.join(process.cmdline())} {process.cwd()}"
            if inside and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def names_on(folder: Path) -> set[str]:
    """The program names among them."""
    return {process.name() for process in processes_on(folder)}


def run_apart(folder: Path, *command: str, umask: int = -1) -> subprocess.Popen[str]:
    """Run `command` between embedded servers on `folder`, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "shop.devserver.embedded", "--fast", "--data-dir", str(folder), "--", *command],
        cwd=ROOT,
        umask=umask,
        # a shell's background job, which the tests may be, has its children ignore Ctrl-C
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  it takes no lock
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(starter: subprocess.Popen[str], number: int) -> None:
    starter.send_signal(number)
    starter.communicate()


def start_apart(folder: Path) -> subprocess.Popen[str]:
    """A starter whose servers are up when this returns; its command runs until it is ended."""
    ready = folder / "ready"
    script = f"from pathlib import Path; import time; Path({str(ready)!r}).touch(); time.sleep(600)"
    starter = run_apart(folder, sys.executable, "-c", script)
    until(lambda: ready.exists() or starter.poll() is not None)
    ready.unlink()
    return starter


def test_servers_start_stop_and_keep_their_data(open_folder: Path) -> None:
    for expected in (1, 2):
        with EmbeddedServers(open_folder) as servers:
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
        assert processes_on(open_folder) == []


def test_given_servers_are_used_and_none_is_started(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/db")
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere")
    with EmbeddedServers(open_folder) as servers:
        assert servers.environment == {}
        assert processes_on(open_folder) == []


def test_a_second_starter_hears_so_and_the_sockets_are_closed_to_other_users(used: Path) -> None:
    with EmbeddedServers(used, durable=False):
        with pytest.raises(EmbeddedError, match="DATA_DIR"):
            EmbeddedServers(used).start()
        for server in ("postgresql", "redis"):
            place = used / "run" / server
            assert stat.S_IMODE(place.stat().st_mode) == 0o700
            sockets = [found for found in place.iterdir() if found.is_socket()]
            assert [stat.S_IMODE(found.stat().st_mode) for found in sockets] == [0o700]


def test_whatever_ends_the_starter_nothing_stays_and_the_next_start_works(used: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        starter = start_apart(used)
        assert names_on(used) >= {"postgres", "redis-server"}
        end(starter, number)
        until(lambda: names_on(used) == set())  # its command went with it, too


def test_the_exit_code_of_the_command_is_handed_on_and_a_strict_umask_is_no_obstacle(open_folder: Path) -> None:
    script = "import os; print(os.environ['REDIS_URL']); raise SystemExit(7)"
    starter = run_apart(open_folder / "new", sys.executable, "-c", script, umask=0o077)
    said, _ = starter.communicate()
    assert starter.returncode == 7
    assert said.startswith("unix://")


def test_when_even_the_guardian_is_killed_the_next_start_ends_what_is_left(used: Path) -> None:
    starter = start_apart(used)
    family = psutil.Process(starter.pid).children()
    guardian = next(child for child in family if "shop.devserver.guardian" in child.cmdline())
    command = next(child for child in family if str(used / "ready") in " ".join(child.cmdline()))
    guardian.kill()
    starter.kill()
    command.kill()  # nobody else ends it now
    starter.communicate()
    left = [process for process in processes_on(used) if process.name() in {"postgres", "redis-server"}]
    assert len(left) >= 2
    with EmbeddedServers(used, durable=False):
        until(lambda: not any(process.is_running() for process in left))


def test_a_stale_pid_that_is_another_server_now_is_left_alone(open_folder: Path) -> None:
    mine, another = open_folder / "mine", open_folder / "another"
    for each in (mine, another):
        each.mkdir()
        readymade.lay_out(each)
    with EmbeddedServers(another, durable=False) as servers:
        for server, pidfile in (("postgresql", "postmaster.pid"), ("redis", "redis.pid")):
            shutil.copyfile(another / server / pidfile, mine / server / pidfile)
        with EmbeddedServers(mine, durable=False) as own:
            assert own.environment != servers.environment
        with psycopg.connect(servers.environment["DATABASE_URL"]) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        client = redis.Redis.from_url(servers.environment["REDIS_URL"])
        assert client.ping()
        client.close()


def test_a_start_that_is_killed_inside_initdb_leaves_no_process_and_begins_again_at_once(
    open_folder: Path,
) -> None:
    starter = run_apart(open_folder, "true")
    until(lambda: any(open_folder.glob("postgresql.new.*/base")) or (open_folder / "postgresql").exists())
    end(starter, signal.SIGKILL)
    with EmbeddedServers(open_folder, durable=False) as servers:
        assert "DATABASE_URL" in servers.environment
        until(lambda: "initdb" not in names_on(open_folder))
    until(lambda: names_on(open_folder) == set())


def test_a_link_in_the_place_of_a_socket_folder_is_not_followed(used: Path) -> None:
    target = used / "target"
    target.mkdir(mode=0o755)
    before = target.stat()
    (used / "run").mkdir()
    (used / "run" / "postgresql").symlink_to(target)
    with pytest.raises(EmbeddedError, match="is not ours"):
        EmbeddedServers(used, durable=False).start()
    after = target.stat()
    assert (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)


def test_data_that_cannot_be_used_are_named(open_folder: Path) -> None:
    (open_folder / "file").touch()
    with pytest.raises(EmbeddedError, match=r"DATA_DIR .*file.* cannot be used: Not a directory"):
        EmbeddedServers(open_folder / "file" / "below").start()
    (open_folder / "postgresql").mkdir()
    (open_folder / "postgresql" / "PG_VERSION").write_text("16\n")
    with pytest.raises(EmbeddedError, match="expecting version 18 but found version 16"):
        EmbeddedServers(open_folder).start()


def test_a_path_too_long_and_strange_for_a_socket_is_no_obstacle(open_folder: Path) -> None:
    deep = open_folder / ("a shop, mine " + "d" * 90)
    deep.mkdir()
    readymade.lay_out(deep)
    with (
        EmbeddedServers(deep, durable=False) as servers,
        psycopg.connect(servers.environment["DATABASE_URL"]) as connection,
    ):
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_that_cannot_start_shows_the_end_of_its_log(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shop.devserver.embedded._redis_binary", lambda: "/bin/false")
    with pytest.raises(EmbeddedError, match="Redis did not start"):
        EmbeddedServers(used, durable=False).start()
    until(lambda: names_on(used) == set())
