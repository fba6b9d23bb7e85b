"""The shopper's address, read behind trusted proxies.

Anyone can send `X-Forwarded-For`, and each proxy appends the address that it saw. So it is read from the right, as
long as its writers are `TRUSTED_PROXIES`: entries further left may be made up.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from django.conf import settings


def client_ip(meta: Mapping[str, Any]) -> str:
    """Return the right-most address that is no trusted proxy, else the peer's."""
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
    """Return what a guest counts to: `client_ip`, or its /64, which one customer is given."""
    address = client_ip(meta)
    return str(ip_network((address, 64), strict=False)) if ":" in address and _address(address) else address


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text.strip().partition("%")[0])  # a zone means something to one machine only
    except ValueError:
        return None
    # a socket that takes both kinds writes IPv4 as ::ffff:a.b.c.d
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def _is_trusted(address: IPv4Address | IPv6Address) -> bool:
    return any(address in network for network in settings.TRUSTED_PROXIES)
