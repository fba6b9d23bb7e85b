"""A plug-in's code, which `make lint` types strictly without a `type: ignore`."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC

from payments import providers as pay


class Paper(pay.Account):
    channel, methods, currencies, zone = "paper", ("counter",), frozenset({"CNY"}), UTC

    def open(self, paying: pay.Opening) -> pay.NextAction:
        return pay.NextAction(type="redirect", url=f"https://paper.example/{paying.method}")


def build(settings: pay.Settings, limits: Callable[[], AbstractContextManager[None]]) -> pay.Provider:
    return Paper(settings["MERCHANT"], limits=limits)


PLUGIN = pay.Plugin(label="paper", build=build, required=("MERCHANT",))


def test_a_method_of_its_own_is_the_one_that_counts() -> None:
    assert PLUGIN.build({"MERCHANT": "m-1"}, nullcontext).methods == ("counter",)
