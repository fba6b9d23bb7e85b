"""Breaks and heals the lab as the plan says, by one thread that supervises it too."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
import redis

from tests.system.chaos.lab import Lab
from tests.system.chaos.plan import Fault

TICK_SECONDS = 0.1
NO_ROOM = "no-room"  # a folder, where a snapshot cannot be put
TRIES = 300  # of so many ticks: another fault may have it down, and a busy machine brings it back late

Work = Callable[[Lab, Fault], object]


def _web(lab: Lab, target: str) -> str:
    """`web 1` and `web 1 redis` as the lab calls process and wire; others keep their name."""
    kind, _, rest = target.partition(" ")
    if kind != "web":
        return target
    number, _, end = rest.partition(" ")
    return f"{lab.webs[int(number)]} {end}".strip()


def keep_trying(work: Callable[[], object], refused: type[Exception]) -> None:
    """Until it is not `refused` any more."""
    for left in reversed(range(TRIES)):
        try:
            work()
            return
        except refused:
            if not left:
                raise
            time.sleep(TICK_SECONDS)


def _in_redis(lab: Lab, *command: Any) -> None:
    with suppress(redis.RedisError), lab.redis() as client:  # a Redis that does not take it is broken enough
        client.execute_command(*command)


def _heal_redis(lab: Lab, *command: Any) -> None:
    """Until it has taken it: a fault that stays would be blamed on the shop."""
    with lab.redis() as client:
        keep_trying(lambda: client.execute_command(*command), redis.RedisError)


def _fill_disk(lab: Lab) -> None:
    """Its snapshots fail as on a full disk, and then it refuses every write (MISCONF)."""
    with suppress(redis.RedisError), lab.redis() as client:
        (Path(client.config_get("dir")["dir"]) / NO_ROOM).mkdir(exist_ok=True)
        for setting in (("dbfilename", NO_ROOM), ("save", "3600 1")):
            client.execute_command("CONFIG SET", *setting)
        client.execute_command("BGSAVE")


def _drop_connections(lab: Lab) -> None:
    with suppress(psycopg.Error), lab.database() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def tell_sandbox(lab: Lab, values: Any) -> None:
    """Set faults of the sandbox, or end all where none is named; it may just be starting."""

    def send() -> None:
        lab.supervise()
        with lab.sandbox() as http:
            http.post("/_control/faults", json=dict(values)).raise_for_status()

    keep_trying(send, httpx.TransportError)


BEGIN: dict[str, Work] = {
    "kill": lambda lab, fault: lab.kill(_web(lab, fault.target)),
    "kill inner": lambda lab, fault: lab.kill_inner(_web(lab, fault.target)),
    "stop": lambda lab, fault: lab.pause(_web(lab, fault.target)),
    "flush": lambda lab, fault: _in_redis(lab, "FLUSHALL"),
    "restart": lambda lab, fault: lab.kill_server("redis"),
    "hang": lambda lab, fault: lab.pause_server("redis"),
    "pause writes": lambda lab, fault: _in_redis(lab, "CLIENT PAUSE", int(fault.seconds * 1000)),
    "read-only": lambda lab, fault: _in_redis(lab, "REPLICAOF", "127.0.0.1", 1),
    "full": lambda lab, fault: _in_redis(lab, "CONFIG SET", "maxmemory", 1),
    "disk full": lambda lab, fault: _fill_disk(lab),
    "crash": lambda lab, fault: lab.kill_server("postgresql"),
    "immediate shutdown": lambda lab, fault: lab.kill_server("postgresql", number=signal.SIGQUIT),
    "freeze": lambda lab, fault: lab.pause_server("postgresql"),
    "drop connections": lambda lab, fault: _drop_connections(lab),
    "cut": lambda lab, fault: lab.network.cut(_web(lab, fault.target)),
    "silence": lambda lab, fault: lab.network.silence(_web(lab, fault.target)),
    "slow": lambda lab, fault: lab.network.slow(
        _web(lab, fault.target), delay_seconds=fault.values["delay_ms"] / 1000
    ),
    "misbehave": lambda lab, fault: tell_sandbox(lab, fault.values),
}

HEAL: dict[str, Work] = {
    "kill": lambda lab, fault: lab.revive(_web(lab, fault.target)),
    "stop": lambda lab, fault: lab.resume(_web(lab, fault.target)),
    "restart": lambda lab, fault: lab.revive_server("redis"),
    "hang": lambda lab, fault: lab.pause_server("redis", resume=True),
    "read-only": lambda lab, fault: _heal_redis(lab, "REPLICAOF", "NO", "ONE"),
    "full": lambda lab, fault: _heal_redis(lab, "CONFIG SET", "maxmemory", 0),
    "disk full": lambda lab, fault: _heal_redis(lab, "CONFIG SET", "save", ""),
    "crash": lambda lab, fault: lab.revive_server("postgresql"),
    "immediate shutdown": lambda lab, fault: lab.revive_server("postgresql"),
    "freeze": lambda lab, fault: lab.pause_server("postgresql", resume=True),
    "cut": lambda lab, fault: lab.network.heal(_web(lab, fault.target)),
    "silence": lambda lab, fault: lab.network.heal(_web(lab, fault.target)),
    "slow": lambda lab, fault: lab.network.heal(_web(lab, fault.target)),
}


class Breaker:
    """Carries out a plan.

    Args:
        lab: it is running.
        plan: the faults, in the order of their beginnings.
        weather: how the providers behave where no fault says otherwise.
        say: is given each fault that begins.
    """

    def __init__(self, lab: Lab, plan: list[Fault], weather: dict[str, Any], say: Callable[[str], object]) -> None:
        self.lab = lab
        self.begun = 0
        self.standing: list[Fault] = []
        self._waiting = list(plan)
        self._weather = weather
        self._say = say
        tell_sandbox(lab, weather)

    def run(self, *, duration: float) -> None:
        """Until `duration` seconds are over and each fault was made; all is healed then."""
        began = time.monotonic()
        while (now := time.monotonic() - began) < duration or self._waiting:
            over = [fault for fault in self.standing if fault.at + fault.seconds <= now]
            for fault in over:
                if not self._is_deaf_to(fault):
                    self._heal(fault)
            while self._waiting and self._waiting[0].at <= now and not self._is_deaf_to(self._waiting[0]):
                self._begin(self._waiting.pop(0))
            self.lab.supervise()
            time.sleep(TICK_SECONDS)
        for fault in sorted(self.standing, key=lambda fault: fault.kind == "misbehave"):
            self._heal(fault)

    def _is_deaf_to(self, fault: Fault) -> bool:
        """Whether the sandbox stands still, which has to learn of this one: the next tick sends it."""
        stopped = any((one.kind, one.target) == ("stop", "sandbox") for one in self.standing)
        return stopped and fault.kind == "misbehave"

    def _begin(self, fault: Fault) -> None:
        self._say(str(fault))
        BEGIN[fault.kind](self.lab, fault)
        self.begun += 1
        if fault.kind in HEAL or fault.kind == "misbehave":
            self.standing.append(fault)

    def _heal(self, fault: Fault) -> None:
        if fault.kind == "misbehave":
            calm = {name: type(value)(0) for name, value in fault.values.items()}
            tell_sandbox(self.lab, calm | self._weather)
        else:
            HEAL[fault.kind](self.lab, fault)
        self.standing.remove(fault)
