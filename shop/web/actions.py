"""Open attempts that a shopper can go on with: the words, code or link of each. Reads only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import segno
from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from payments.channels.configured import renderer as renderer_of
from payments.models import Attempt
from payments.providers.actions import NextAction, NextActionType, Renderer
from shop.web.forms import channel_name

# in a shopper's words; other kinds and channels have plain ones
HEADINGS: Mapping[tuple[str, str], Any] = {
    (NextActionType.QR_CODE, "wechat"): _("Scan with WeChat"),
    (NextActionType.QR_CODE, "alipay"): _("Scan with Alipay"),
    (NextActionType.REDIRECT, "wechat"): _("Continue in WeChat"),
    (NextActionType.REDIRECT, "alipay"): _("Continue at Alipay"),
    (NextActionType.REDIRECT, "stripe"): _("Continue at Stripe"),
}


@dataclass(frozen=True, slots=True)
class Action:
    """An open attempt that the shopper can go on with."""

    attempt: Attempt
    next: NextAction
    renderer: Renderer

    @property
    def by_form(self) -> bool:
        """True if the way on leads through us, who get a fresh code or link where this one is over."""
        expires_at = self.attempt.next_action_expires_at
        if expires_at is None:
            return False
        # a link may be pressed long after the page was drawn
        return self.renderer.redirects or expires_at <= timezone.now()

    @property
    def expired(self) -> bool:
        """True if there is nothing to show but the way to a fresh one."""
        return self.by_form and not self.renderer.redirects

    @property
    def heading(self) -> Any:
        channel = self.attempt.channel
        return HEADINGS.get((self.next.type, channel)) or gettext("Pay with %(method)s") % {
            "method": channel_name(channel)
        }

    @property
    def words_when_expired(self) -> tuple[Any, Any]:
        """Sentence about one that can be used no more, and the button to a fresh one."""
        if self.next.type == NextActionType.QR_CODE:
            return gettext("This code has expired."), gettext("Show a new code")
        return gettext("This has expired."), gettext("Show it again")

    @property
    def qr_picture(self) -> str:
        """Data URL of its QR code, as a picture with its quiet zone that a long press saves."""
        return segno.make(self.next.url, error="m", micro=False).png_data_uri(scale=10, border=4)

    @property
    def sandbox_url(self) -> str:
        """URL of the sandbox's pretended phone for this QR code; empty where the channels are real."""
        url = self.next.url
        if not settings.SANDBOX_URL or self.by_form or self.renderer.redirects:
            return ""
        if url.startswith(f"{settings.SANDBOX_URL}/"):
            return url  # the code itself leads there
        prepay = parse_qs(urlsplit(url).query).get("pr", [""])[0]
        if self.attempt.channel != "wechat" or not prepay:
            return ""
        return f"{settings.SANDBOX_URL}/wechat/scan?pr={quote(prepay, safe='')}"


def actions_of(attempts: Sequence[Attempt]) -> list[Action]:
    """List what the shopper can go on with, oldest first."""
    opened = [(row, action) for row in attempts if (action := row.next_action) is not None]
    found = [Action(row, action, renderer_of(row.account, action.type)) for row, action in opened]
    return [action for action in found if action.renderer.page]  # else it goes on by a script that is not ours
