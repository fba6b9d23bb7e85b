"""Kinds of next actions and their renderers; a plug-in adds its own by `Plugin.renderers`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from payments.providers.base import NextAction, NextActionType

KIND_MAX = 16  # characters, as the row has


def parameters(action: NextAction) -> Mapping[str, Any]:
    """Show `NextAction.params`, where there are any."""
    return {"params": dict(action.params)} if action.params else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Renderer:
    """How a kind of next action is shown.

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
