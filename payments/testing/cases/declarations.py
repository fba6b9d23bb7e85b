"""Case of what a plug-in and its account say of themselves before anything is paid."""

from datetime import tzinfo
from typing import Any

from idempotency.ids import new_id
from payments.providers.actions import KIND_MAX
from payments.providers.documents import NUMBER_MAX
from payments.providers.plugin import Capability
from payments.testing.bench import Bench
from payments.testing.verdicts import must
from payments.testing.watched import is_currency, must_be

METHOD_MAX = CHANNEL_MAX = 16  # characters, as the rows have


def declared(bench: Bench) -> None:
    """Require the kinds by which the engine reads what is declared."""
    plugin, account = bench.plugin, bench.provider
    _members(plugin.label, str, "`Plugin.label`")
    for word in _members(plugin.capabilities, frozenset, "`Plugin.capabilities`", may_be_empty=True):
        known = ", ".join(Capability)
        must(word in list(Capability), f"the engine knows no capability {word!r}: {known}")
    for name in ("headers", "required", "optional", "actions", "parts"):
        _members(getattr(plugin, name), tuple, f"`Plugin.{name}`", may_be_empty=True)
    for kind in plugin.actions:
        must(len(kind) <= KIND_MAX, f"the action {kind!r} has more than {KIND_MAX} characters")
    channel = _members(account.channel, str, "`channel`")
    must(len(channel) <= CHANNEL_MAX, f"the channel {channel!r} has more than {CHANNEL_MAX} characters")
    merchant = _members(account.merchant, str, "`merchant`")
    must(len(merchant) <= NUMBER_MAX, f"the merchant {merchant!r} has more than {NUMBER_MAX} characters")
    for method in _members(account.methods, tuple, "`methods`"):
        must_be(method, str, f"the method {method!r}")
        must(len(method) <= METHOD_MAX, f"the method {method!r} has more than {METHOD_MAX} characters")
    for currency in _members(account.currencies, frozenset, "`currencies`"):
        sound = isinstance(currency, str) and is_currency(currency)
        must(sound, f"ISO 4217 knows no currency {currency!r}: it has three capitals")
    must_be(account.zone, tzinfo, "`zone`")
    for name in ("unknown", "in_use"):
        must(not isinstance(getattr(account, name, ()), str), f"`{name}` is one text: write codes, as ('…',)")
    ours = new_id().hex
    theirs = _members(bench.number(ours), str, "`number`")
    must(len(theirs) <= NUMBER_MAX, f"`number` writes {len(theirs)} characters, more than {NUMBER_MAX}")
    read = bench.read_number(theirs)
    must(read == ours, f"`read_number` reads {read!r}, but `number` wrote {ours!r}")


def _members(found: Any, kind: type[Any], what: str, *, may_be_empty: bool = False) -> Any:
    must_be(found, kind, what)
    must(may_be_empty or bool(found), f"{what} is empty")
    return found
