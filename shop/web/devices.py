"""The shopper's device, guessed from the request; decides only what is offered first."""

import re

from django.http import HttpRequest

_PHONE = re.compile(r"iPhone|iPod|Android.+Mobile|Mobile.+Firefox|HarmonyOS.+Mobile|Windows Phone")
_WECHAT = "MicroMessenger"  # its own browser: it opens no H5 payment, and a page for it needs the shopper's openid


def opens_wallets(request: HttpRequest) -> bool:
    """Return whether a link can change over from this browser to a wallet app on the phone."""
    agent = request.headers.get("User-Agent", "")[:1000]
    return _WECHAT not in agent and _PHONE.search(agent) is not None
