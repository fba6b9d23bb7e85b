"""Whose address a request has, with and without proxies before the server."""

import runpy
from ipaddress import ip_network
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

import shop.settings
from shop.platform.clientip import client_ip

PROXIES = ("127.0.0.1", "::1", "10.0.0.0/8", "2001:db8:1::/48")


@pytest.mark.parametrize(
    ("peer", "forwarded", "said"),
    [
        ("203.0.113.7", "198.51.100.1", "203.0.113.7"),  # nobody whom we trust says so
        ("127.0.0.1", None, "127.0.0.1"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("127.0.0.1", "198.51.100.1, 203.0.113.7", "203.0.113.7"),  # what the shopper wrote himself comes first
        ("127.0.0.1", "198.51.100.1,203.0.113.7 , 10.1.2.3", "203.0.113.7"),
        ("127.0.0.1", "10.1.2.3, 10.1.2.4", "127.0.0.1"),
        ("127.0.0.1", "203.0.113.7, unknown", "127.0.0.1"),  # behind what cannot be read everything may be made up
        ("127.0.0.1", "203.0.113.7,", "127.0.0.1"),
        ("127.0.0.1", "nonsense, \x00, 203.0.113.7", "203.0.113.7"),
        ("127.0.0.1", "9" * 5000, "127.0.0.1"),
        ("::1", "2001:DB8::7, 2001:db8:1::2", "2001:db8::7"),
        ("::ffff:127.0.0.1", "::ffff:203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", None, "203.0.113.7"),
        ("10.0.0.9", "fe80::1%<b>", "fe80::1"),
        ("", "203.0.113.7", ""),  # a socket of UNIX has none
    ],
)
def test_the_last_address_that_is_no_proxy(settings: Any, peer: str, forwarded: str | None, said: str) -> None:
    settings.TRUSTED_PROXIES = [ip_network(proxy) for proxy in PROXIES]
    sent = {} if forwarded is None else {"HTTP_X_FORWARDED_FOR": forwarded}
    assert client_ip({"REMOTE_ADDR": peer, **sent}) == said


def test_without_trust_it_is_the_peer(settings: Any) -> None:
    settings.TRUSTED_PROXIES = []
    assert client_ip({"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_FOR": "203.0.113.7"}) == "127.0.0.1"
    assert client_ip({"HTTP_X_FORWARDED_FOR": "203.0.113.7"}) == ""


@pytest.mark.parametrize("value", ["nginx", "127.0.0.1;10.0.0.1", "10.0.0.1/8", "10.0.0.0/33", "127.0.0.1,,::1"])
def test_a_mistake_stops_the_start(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TRUSTED_PROXIES", value)
    with pytest.raises(ImproperlyConfigured, match=r"^TRUSTED_PROXIES must be addresses or networks"):
        runpy.run_path(shop.settings.__file__)


def test_what_is_set_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runpy.run_path(shop.settings.__file__)["TRUSTED_PROXIES"] == []
    monkeypatch.setenv("TRUSTED_PROXIES", "127.0.0.1, 172.16.0.0/12")
    found = runpy.run_path(shop.settings.__file__)["TRUSTED_PROXIES"]
    assert found == [ip_network("127.0.0.1/32"), ip_network("172.16.0.0/12")]
