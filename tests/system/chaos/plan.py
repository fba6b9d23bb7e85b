"""All that chance decides of a run, drawn from its seed: faults, visits, clocks, weather.

How fast the machine is decides how far the visits get, and which request a fault hits; what is done, to what, when
and for how long is the seed's.
"""

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CLIENTS = 6
USERS = 60
WEBS = 3

CHANNELS = ("wechat", "alipay", "stripe")
PAUSE_SECONDS_MEAN = 1.5  # between the beginnings of two faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that breaks.

    Attributes:
        at: seconds after the beginning of the run.
        seconds: until it is healed; 0: it is over at once.
        kind: a name of `KINDS`.
        target: what is broken: ``web 0``, ``worker``, ``redis``, ``web 1 postgresql`` (a wire), ….
        values: what the sandbox is sent, or a delay.
    """

    at: float
    seconds: float
    kind: str
    target: str
    values: Mapping[str, Any]

    def __str__(self) -> str:
        detail = " ".join(f"{name}={value}" for name, value in self.values.items())
        healed = f", healed after {self.seconds:.1f} s" if self.seconds else ""
        return " ".join(f"{self.at:6.1f} s  {self.target}: {self.kind} {detail}".split(" ")).rstrip() + healed


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """What one shopper does, from beginning to end.

    Attributes:
        kind: ``buy``, ``flash``, ``coupon`` or ``like``.
        user: their number.
        web: the web process that is asked first.
        items: sku and quantity.
        copies: how often each keyed request is sent at the same instant, each to another web process.
        channels: by which he begins to pay, one after the other.
        pays: for each channel whether he then pays.
        ending: ``leave``, ``cancel`` or ``refund``; what comes after, at the same instant as the paying or later.
        at_once: cancel while paying; refunds beside each other.
        parts: of each refund, in hundredths of the price; together they may exceed it.
    """

    kind: str
    user: int
    web: int
    items: tuple[tuple[str, int], ...] = ()
    copies: int = 1
    channels: tuple[str, ...] = ()
    pays: tuple[bool, ...] = ()
    ending: str = "leave"
    at_once: bool = False
    parts: tuple[int, ...] = ()


def visits(seed: int, client: int) -> Iterator[Visit]:
    """The endless sequence of a client's visits."""
    dice = random.Random(f"visits {seed} {client}")
    while True:
        kind = dice.choices(["buy", "flash", "coupon", "like"], [12, 3, 1, 1])[0]
        copies = dice.choices([1, 2, 3], [6, 2, 1])[0]
        visit = {"kind": kind, "user": dice.randrange(USERS), "web": dice.randrange(WEBS), "copies": copies}
        if kind == "buy":
            items = dice.choice([(("mug", 1),), (("mug", 2),), (("poster", 1),), (("mug", 1), ("poster", 1))])
            visit |= {"items": items}
        if kind in ("buy", "flash"):
            visit |= _paying(dice)
        yield Visit(**visit)


def _paying(dice: random.Random) -> dict[str, Any]:
    channels = dice.sample(CHANNELS, dice.choices([0, 1, 2], [1, 6, 2])[0])
    pays = tuple(dice.random() < 0.8 for _ in channels)
    ending = dice.choices(["leave", "cancel", "refund"], [4, 3, 3])[0]
    parts = dice.choice([(100,), (30,), (30, 50), (60, 60), (100, 100), (50, 50)])
    return {
        "channels": tuple(channels),
        "pays": pays,
        "ending": ending,
        "at_once": dice.random() < 0.5,
        "parts": parts if ending == "refund" else (),
    }


def weather(seed: int) -> dict[str, Any]:
    """How the providers behave all the time."""
    dice = random.Random(f"weather {seed}")
    return {
        "seed": seed % 2**31,
        "duplicates": dice.choice([1, 1, 2, 3]),
        "parallel": dice.choice([1, 4]),
        "delay_ms": dice.choice([0, 0, 100, 500]),
        "reorder": dice.random() < 0.5,
        "drop_rate": dice.choice([0, 0, 0.1, 0.3]),
    }


def clocks(seed: int) -> dict[int, float]:
    """One web process's clock is wrong: its number, and by how many seconds it is ahead."""
    dice = random.Random(f"clocks {seed}")
    return {dice.randrange(WEBS): round(dice.uniform(-12, 12), 1)}


WEB = tuple(f"web {index}" for index in range(WEBS))
PROVIDER_FAULTS: tuple[dict[str, Any], ...] = (
    {"timeout_after_success": 3},
    {"timeout_after_success": True},
    {"http_500_rate": 0.5},
    {"http_500_rate": 1},
    {"drop_rate": 1},
    {"duplicates": 6, "parallel": 6},
    {"delay_ms": 1500, "reorder": True},
    {"pay_closed": True},
    {"wrong_amount": True},
)

# kind -> how often in a hundred or so, on what, for how many seconds
KINDS: dict[str, tuple[int, tuple[str, ...], tuple[float, float]]] = {
    "kill": (14, (*WEB, *WEB, "worker", "worker", "sandbox"), (0.2, 3)),
    "kill inner": (5, WEB, (0, 0)),
    "stop": (14, (*WEB, *WEB, "worker", "worker", "sandbox"), (0.5, 7)),
    "flush": (5, ("redis",), (0, 0)),
    "restart": (5, ("redis",), (0.1, 3)),
    "hang": (5, ("redis",), (0.5, 3)),
    "pause writes": (3, ("redis",), (0.5, 3)),
    "read-only": (4, ("redis",), (0.5, 4)),
    "full": (4, ("redis",), (0.5, 4)),
    "disk full": (4, ("redis",), (0.5, 4)),
    "crash": (4, ("postgresql",), (0.1, 1.5)),
    "immediate shutdown": (3, ("postgresql",), (0.1, 1.5)),
    "freeze": (3, ("postgresql",), (0.5, 3)),
    "drop connections": (5, ("postgresql",), (0, 0)),
    "cut": (6, tuple(f"{web} {end}" for web in WEB for end in ("postgresql", "redis", "provider")), (0.3, 3)),
    "silence": (6, tuple(f"{web} {end}" for web in WEB for end in ("postgresql", "redis", "provider")), (0.3, 4)),
    "slow": (6, tuple(f"{web} {end}" for web in WEB for end in ("postgresql", "redis", "provider")), (1, 4)),
    "misbehave": (14, ("sandbox",), (1, 6)),
}


def faults(seed: int, *, duration: float) -> list[Fault]:
    """The faults of a run, in the order in which they begin; on one target one at a time."""
    dice = random.Random(f"faults {seed}")
    names, rates = list(KINDS), [rate for rate, _, _ in KINDS.values()]
    free_at: dict[str, float] = {}
    drawn: list[Fault] = []
    at = 1.0
    while True:
        at += dice.expovariate(1 / PAUSE_SECONDS_MEAN)
        if at > duration - 0.5:
            return drawn
        kind = dice.choices(names, rates)[0]
        _, targets, (shortest, longest) = KINDS[kind]
        target, seconds = dice.choice(targets), round(dice.uniform(shortest, longest), 1)
        values = dice.choice(PROVIDER_FAULTS) if kind == "misbehave" else {}
        if kind == "slow":
            values = {"delay_ms": dice.choice([20, 100, 400, 1500])}
        if free_at.get(target, 0) > at:
            continue
        seconds = min(seconds, round(duration - at, 1))
        free_at[target] = at + seconds + 1.5  # it gets a moment to be of use again
        drawn.append(Fault(at=round(at, 2), seconds=seconds, kind=kind, target=target, values=values))


def described(seed: int, *, duration: float) -> str:
    """The plan for people."""
    lines = [f"seed {seed}, {duration:g} s, {CLIENTS} clients, {WEBS} web processes"]
    lines += [f"clock of web {web}: {ahead:+} s" for web, ahead in clocks(seed).items()]
    lines.append(f"providers: {weather(seed)}")
    lines += [str(fault) for fault in faults(seed, duration=duration)]
    for client in range(CLIENTS):
        for visit in itertools.islice(visits(seed, client), 5):
            lines.append(f"client {client}: {visit}")
        lines.append(f"client {client}: …")
    return "\n".join(lines)
