"""A real ZooKeeper for tests: a Java process on loopback with short ticks.

Registered with a guardian, so it ends with the test process however that one ends; its data are in a throwaway
folder. Never used by the product.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from shop.devserver import embedded
from shop.devserver.guardian import Guardian
from tests.ports import free_ports
from tests.processes import stand_still

START_SECONDS = 60.0
POLL_SECONDS = 0.05
TICK_MILLISECONDS = 200  # sessions end within a tick of their time-out
JARS = (
    Path("/usr/share/java/zookeeper.jar"),
    Path("/usr/share/java/slf4j-simple.jar"),
)  # the first names the rest
MISSING = "ZooKeeper is missing ({}): apt-get install zookeeper"


def missing() -> str | None:
    """Why none can be started here, with what to do about it; None if one can."""
    if shutil.which("java") is None:
        return MISSING.format("no java")
    absent = [str(jar) for jar in JARS if not jar.exists()]
    return MISSING.format(f"no {', '.join(absent)}") if absent else None


class ZooKeeperServer:
    """`start` it, and `stop` it in the end.

    Args:
        folder: for its data and log; emptied at each start.

    Attributes:
        hosts: what `KazooClient` takes.
    """

    def __init__(self, guardian: Guardian, folder: Path) -> None:
        self._guardian = guardian
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        (self._port,) = free_ports(1)
        self.hosts = f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start an empty one, and wait until it answers.

        Raises:
            RuntimeError: Java or the jars are missing, or it did not come up (with the end of its log).
        """
        if reason := missing():
            raise RuntimeError(reason)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        configuration = self._folder / "zoo.cfg"
        configuration.write_text(
            f"tickTime={TICK_MILLISECONDS}\nminSessionTimeout={2 * TICK_MILLISECONDS}\nmaxSessionTimeout=60000\n"
            f"dataDir={self._folder}/data\nclientPortAddress=127.0.0.1\nclientPort={self._port}\n"
            "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr,wchp\n"
        )
        log = self._folder / "log"
        options = ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        # an fsync for each write is for machines that lose power, and 64 MB of log at once for those that have many
        settings = [
            "zookeeper.forceSync=no",
            "zookeeper.preAllocSize=64",
            "org.slf4j.simpleLogger.defaultLogLevel=warn",
        ]
        options += [f"-D{setting}" for setting in settings]
        options += ["-cp", os.pathsep.join(map(str, JARS))]
        command = ["java", *options, "org.apache.zookeeper.server.ZooKeeperServerMain", str(configuration)]
        self._process = self._guardian.start(command, log=log, stop_signal=signal.SIGKILL)
        deadline = time.monotonic() + START_SECONDS
        while not self.says("srvr").startswith("Zookeeper version"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"ZooKeeper did not start:\n{embedded.end_of(log)}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """A kill -9, and wait for it."""
        if self._process is not None:
            self._guardian.stop(self._process)
            self._process = None

    def says(self, command: str) -> str:
        """Its answer to a four-letter command; nothing if it does not listen."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=10) as line:
                line.sendall(command.encode())
                return line.makefile().read()
        except OSError:
            return ""

    def watched(self) -> dict[str, int]:
        """How many sessions watch each node."""
        found: dict[str, int] = {}
        path = ""
        for line in self.says("wchp").splitlines():
            if line.startswith("/"):
                path, found[line] = line, 0
            elif line.strip():
                found[path] += 1
        return found

    def freeze(self) -> None:
        """It stands still: connections stay, nothing is answered."""
        assert self._process is not None
        stand_still(self._process.pid)

    def thaw(self) -> None:
        """It goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
