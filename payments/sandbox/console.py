"""The console on the first page: buttons for what a shopper, bank or network does."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from payments.sandbox import faults, pages, state, trades

_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Switch:
    """A button that turns a fault on, and off again."""

    fault: str
    value: Any
    label: str
    effect: str

    @property
    def on(self) -> bool:
        return bool(faults.current()[self.fault] != faults.NONE[self.fault])


SWITCHES = (
    Switch("user_paying", True, "Wallet busy", "WeChat won't close a trade: the shopper is typing the password."),
    Switch("delay_ms", 10_000, "Delay", "Notifications leave ten seconds late."),
    Switch("duplicates", 10, "Duplicate ×10", "Each notification is sent ten times."),
    Switch("reorder", True, "Reorder", "Notifications leave in random order."),
    Switch("wrong_amount", True, "Wrong amount", "The shopper is charged ¥1 more."),
    Switch("timeout_after_success", 1, "Lose the answer", "The next call takes effect, and its answer is lost."),
)


def home(request: HttpRequest) -> HttpResponse:
    latest = state.store().rows("SELECT * FROM trades ORDER BY created_at DESC LIMIT ?", _SHOWN)
    shown = {switch.fault for switch in SWITCHES}
    others = {name: value for name, value in faults.current().items() if value != faults.NONE[name]}
    context = {
        "switches": SWITCHES,
        "others": {name: value for name, value in others.items() if name not in shown},
        "trades": [pages.shown(trade) for trade in latest],
    }
    return render(request, "home.html", context)


def switch(request: HttpRequest, *, fault: str) -> HttpResponse:
    """Turn the fault on, or off if it is on."""
    found = next((one for one in SWITCHES if one.fault == fault), None)
    if found is None:
        raise Http404
    faults.change({fault: faults.NONE[fault] if found.on else found.value})
    return redirect("/")


def refuse(request: HttpRequest, *, out_trade_no: str, how: str) -> HttpResponse:
    """End a payment without a charge.

    A declined trade stays open for another try, and the merchant hears nothing, as with a wallet's code. A
    cancelled one is closed: the merchant hears of it when it asks, from Stripe at once.
    """
    trade = pages.trade_or_404("out_trade_no", out_trade_no)
    if how == "cancel":
        with suppress(trades.Refused):  # paid already, as the page says
            trades.close(channel=trade["channel"], out_trade_no=out_trade_no)
        return redirect(f"/pay/{out_trade_no}")
    return redirect(f"/pay/{out_trade_no}?declined=1")
