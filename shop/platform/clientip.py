"""The shopper's address. Behind a proxy the connection's peer is the proxy, and `X-Forwarded-For` is believed.

Anyone can send that header, and each proxy appends the address that it saw. So it is read from the right, as long
as those who wrote it are `TRUSTED_PROXIES`: what stands further left may be made up.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from django.conf import settings


def client_ip(meta: Mapping[str, Any]) -> str:
    """The right-most address that is no trusted proxy; the peer's if there is none to be believed.

    Args:
        meta: `META` of a request.

    Returns:
        An address of IPv4 or IPv6 in its usual form; where the server told no address, what it told.
    """
    peer = str(meta.get("REMOTE_ADDR") or "")
    address = _address(peer)
    if address is None:
        return peer
    if _is_trusted(address):
        for entry in reversed(str(meta.get("HTTP_X_FORWARDED_FOR") or "").split(",")):
            seen = _address(entry)
            if seen is None:
                break
            if not _is_trusted(seen):
                return str(seen)
    return str(address)


def client_network(meta: Mapping[str, Any]) -> str:
    """Whose rate a guest's request counts to: `client_ip`, of IPv6 its /64, which one line is given."""
    address = client_ip(meta)
    return str(ip_network((address, 64), strict=False)) if ":" in address and _address(address) else address


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text.strip().partition("%")[0])  # a zone is a matter of the machine that saw it
    except ValueError:
        return None
    # a socket that takes both kinds tells IPv4 as ::ffff:a.b.c.d
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def _is_trusted(address: IPv4Address | IPv6Address) -> bool:
    return any(address in network for network in settings.TRUSTED_PROXIES)
