"""Settings from the environment; mistakes that stop a start: tests/system/test_service.py."""

import os
import socket
from select import select

import pytest
from psycopg import pq
from psycopg.conninfo import make_conninfo

from shop.environment import Environment


@pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux bounds the wait for a lost machine"
)
def test_a_database_whose_machine_is_gone_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        found = Environment({"DATABASE_URL": f"postgresql://ann@{host}:{port}/shop"}).database("DATABASE_URL")
        connecting = pq.PGconn.connect_start(make_conninfo(host=host, port=port, **found["OPTIONS"]).encode())
        while connecting.connect_poll() == pq.PollingStatus.WRITING:
            select([], [connecting.socket], [], 30)
        with socket.socket(fileno=os.dup(connecting.socket)) as ours:
            assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 25_000
            assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
        connecting.finish()


def test_a_limit_in_the_address_counts_before_our_own() -> None:
    url = "postgresql://ann@db/shop?connect_timeout=9&tcp_user_timeout=1000"
    options = Environment({"DATABASE_URL": url}).database("DATABASE_URL")["OPTIONS"]
    assert [int(options[name]) for name in ("connect_timeout", "tcp_user_timeout")] == [9, 1000]
