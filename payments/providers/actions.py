"""Ways to pay, what the shopper does next, and how a page shows it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from ipaddress import ip_address
from typing import Any

KIND_MAX = 16  # characters, as the row has


class PayMethod(StrEnum):
    """Usual ways to pay; a channel may have others, of up to 16 characters."""

    NATIVE = "native"  # a QR code on our page
    H5 = "h5"  # a phone's browser changes over to the wallet
    JSAPI = "jsapi"  # a page inside the wallet
    PAGE = "page"  # the provider's own page
    PRECREATE = "precreate"  # a QR code on our page
    INTENT = "intent"  # confirmed at once, then perhaps the provider's own page


@dataclass(frozen=True, slots=True, kw_only=True)
class Payer:
    """Data about the shopper that some methods need.

    Attributes:
        openid: the wallet's id of the shopper for our app (`PayMethod.JSAPI`).
        client_ip: the address of the shopper's device (`PayMethod.H5`).
    """

    openid: str = field(default="", repr=False)
    client_ip: str = field(default="", repr=False)


NOBODY = Payer()

NEEDED: Mapping[str, str] = {PayMethod.JSAPI: "openid", PayMethod.H5: "client_ip"}  # the field of `Payer`


def needed_of(method: str, payer: Payer) -> dict[str, str]:
    """Return what a method must know of the shopper. Raises ValueError where `payer` lacks it."""
    if (name := NEEDED.get(method)) is None:
        return {}
    value: str = getattr(payer, name)
    if not value:
        raise ValueError(f"{method} needs the payer's {name}")
    if name == "client_ip":
        ip_address(value)
    return {name: value}


class NextActionType(StrEnum):
    """Usual next steps of the shopper; a plug-in may register others (`Plugin.renderers`)."""

    QR_CODE = "qr_code"  # draw `NextAction.url`
    REDIRECT = "redirect"  # send the browser to `NextAction.url`
    JSAPI = "jsapi"  # hand `NextAction.params` to the wallet's script


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAction:
    """Next step of the shopper.

    Attributes:
        url: to draw or to go to; empty for `JSAPI`.
        params: for `JSAPI`, the signed arguments of the wallet's script.
        reference: the provider's number of what was opened, where its queries need it.
        lives: how long `url` and `params` can be used; None: as long as the trade can be paid.
    """

    type: str
    url: str
    params: Mapping[str, str] = field(default_factory=dict)
    reference: str = ""
    lives: timedelta | None = None


def parameters(action: NextAction) -> Mapping[str, Any]:
    """Show `NextAction.params`, where there are any."""
    return {"params": dict(action.params)} if action.params else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Renderer:
    """Renderer of a kind of next action.

    Attributes:
        page: what a payment page shows: the name of a template, which has the `NextAction` as ``action``, or a
            function that returns its text, which is escaped unless it is safe. Empty: nothing, for a script of the
            project's own goes on.
        members: of the API, beside ``type`` and ``url``.
        redirects: the browser may be sent to `NextAction.url` at once.
    """

    page: str | Callable[[NextAction], str] = ""
    members: Callable[[NextAction], Mapping[str, Any]] = parameters
    redirects: bool = False


RENDERERS: Mapping[str, Renderer] = {
    NextActionType.QR_CODE: Renderer(page="payments/actions/qr_code.html"),
    NextActionType.REDIRECT: Renderer(page="payments/actions/redirect.html", redirects=True),
    NextActionType.JSAPI: Renderer(),
}
