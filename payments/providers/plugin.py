"""A channel before any account of it: its settings, headers and acknowledgement."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from payments.providers.actions import RENDERERS, Renderer
from payments.providers.base import Provider
from payments.providers.settings_fields import Settings
from payments.providers.transport import Limits

SOON: Mapping[str, str] = {"Retry-After": "1"}
VERSION = 1  # of `Plugin` and `Provider`; a larger one asks more of a plug-in


def gettext_noop(text: str) -> str:
    """Mark a label for `makemessages`, as Django's own does, of which providers know nothing."""
    return text


class Capability(StrEnum):
    """Ability that a channel may lack; the `Provider`'s method for it is never called then."""

    CLOSE = "close"
    VOID = "void"  # `Provider.close` of a trade that is `APPROVED`
    REFUND = "refund"
    PARTIAL_REFUND = "partial_refund"
    BILL = "bill"
    DISPUTE = "dispute"  # `Provider.read_notification` states disputes, and `bill` what they moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A notification that was not taken.

    Attributes:
        status: 400, 401, 500 or 503.
        message: a sentence.
    """

    status: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """Answer to a notification, in the provider's own form."""

    status: int
    body: str = ""
    content_type: str = "text/plain"
    headers: Mapping[str, str] = field(default_factory=dict)


def by_status(refused: Refusal | None) -> Acknowledgement:
    """Answer a notification by the status alone; the sentence is for a developer."""
    if refused is None:
        return Acknowledgement(status=200)
    headers = SOON if refused.status >= 500 else {}
    return Acknowledgement(status=refused.status, body=refused.message, headers=headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A payment channel: `PLUGIN` of its package.

    Attributes:
        label: its name for people, in English.
        version: the `VERSION` that it was written for.
        capabilities: what the channel can do; all but `Capability.DISPUTE` where nothing is said.
        actions: kinds of `NextAction` that it gives; each needs a renderer.
        renderers: of the kinds that are not in `RENDERERS`.
        build: an account's provider from its settings, its calls inside `Limits`; raises ConfigError.
        required: fields that must be set.
        optional: all other fields.
        acknowledge: the answer to a notification that was taken (None), or was not.
        parts: readers of some settings, each by itself, so that one mistake does not hide another.
        headers: of a notification, all that `Provider.read_notification` reads.
        nonce_header: one of `headers`, another in each copy that is signed again; empty where none is signed.
        payer_names: members and parameters of notifications that identify the payer, in lower case.
        charges_again: whether a number of ours may be charged more than once, each charge under its own number.
        spared: the required fields that these settings make unnecessary.
        private_files: fields whose files we alone may read.
        certificate_files: fields whose certificates somebody must replace before they end.
        live_key: the field that holds a key for real money; empty where none does, or no key shows it.
        renew: stores the provider's new certificates ahead of need, and returns their names; raises ProviderError,
            or ConfigError where they cannot be stored. None where a person replaces them.
    """

    label: str
    build: Callable[[Settings, Limits], Provider]
    required: tuple[str, ...]
    acknowledge: Callable[[Refusal | None], Acknowledgement] = by_status
    parts: tuple[Callable[[Settings], object], ...] = ()
    version: int = 1
    capabilities: frozenset[Capability] = frozenset(Capability) - {Capability.DISPUTE}
    actions: tuple[str, ...] = tuple(RENDERERS)
    renderers: Mapping[str, Renderer] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    nonce_header: str = ""
    payer_names: frozenset[str] = frozenset()
    charges_again: bool = False
    spared: Callable[[Settings], tuple[str, ...]] = lambda settings: ()
    private_files: tuple[str, ...] = ()
    certificate_files: tuple[str, ...] = ()
    live_key: Callable[[Settings], str] = lambda settings: ""
    renew: Callable[[Provider, Settings], tuple[str, ...]] | None = None

    def renderer(self, kind: str) -> Renderer | None:
        """Return the renderer of a kind of next action; None where nobody has registered one."""
        return {**RENDERERS, **self.renderers}.get(kind)
