"""nginx before three web processes, which are killed, and callers that never end."""

import contextlib
import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx

from tests.running import is_up, until
from tests.system.cluster.buyers import Buyers
from tests.system.cluster.conftest import Deploy
from tests.system.cluster.deployment import Deployment


def test_a_web_process_killed_under_load_costs_nothing(deploy: Deploy, database_url: str) -> None:
    deployment = deploy(database_url=database_url)
    with Buyers(deployment) as buyers:
        for index in range(len(deployment.web_urls)):
            buyers.buy_more(30)
            deployment.kill_web(index)
            buyers.buy_more(30)
            deployment.start_web(index)
            until(lambda url=deployment.web_urls[index]: is_up(f"{url}/readyz"))
    buyers.settle()
    assert set(buyers.said) <= {201, 409}, "somebody was refused, although two processes were there"


def test_a_purchase_through_nginx(deploy: Deploy, database_url: str) -> None:
    deployment = deploy(database_url=database_url)
    with endless_bodies(deployment, count=40):  # more than all web processes have threads
        buy(deployment)
    with deployment.api() as client:
        page = client.get("/")
        assert page.status_code == 200
        for address in re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text):
            assert client.get(address).status_code == 200, address
        assert client.get("/admin/login/").status_code == 200
        assert client.get("/metrics").status_code == 404
        large = client.post("/api/v1/orders", content=b"x" * 300_000, headers={"Idempotency-Key": "k"})
        assert large.status_code == 413


@contextlib.contextmanager
def endless_bodies(deployment: Deployment, *, count: int) -> Iterator[None]:
    """Callers who begin to send an order and then send no more; each is hung up on."""
    at = urlsplit(deployment.url).netloc
    host, _, port = at.partition(":")
    begun = f"POST /api/v1/orders HTTP/1.1\r\nHost: {at}\r\nAuthorization: Token {deployment.token}\r\n"
    begun += "Idempotency-Key: slow\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    with contextlib.ExitStack() as stack:
        lines = []
        for _ in range(count):
            line = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            line.sendall(begun.encode())
            lines.append(line)
        yield
        for line in lines:
            assert line.recv(12) in {b"", b"HTTP/1.1 408"}


def buy(deployment: Deployment) -> None:
    """Order, pay at the sandbox, be notified by way of nginx, and refund."""
    with deployment.api() as client:
        order = _post(client, "/api/v1/orders", {"items": [{"sku": "mug", "quantity": 2}]}, key="order")
        with client.stream("GET", f"/api/v1/orders/{order['id']}/events") as events:
            assert next(events.iter_lines())  # nothing on the way keeps it back
        payment = _post(client, f"/api/v1/orders/{order['id']}/payment", {"channel": "wechat"}, key="payment")
        number = payment["attempts"][0]["out_trade_no"]
        paid = httpx.post(f"{deployment.sandbox_url}/_control/pay", json={"out_trade_no": number}, trust_env=False)
        assert paid.status_code == 200
        where = f"/api/v1/payments/{payment['id']}"
        until(lambda: client.get(where).json()["status"] == "succeeded")
        assert client.get(f"/api/v1/orders/{order['id']}").json()["status"] == "paid"
        refund = {"amount_minor": 3980, "reason": "changed my mind"}
        again = [_post(client, f"{where}/refunds", refund, key="refund") for _ in range(2)]
        assert again[0]["id"] == again[1]["id"]
        until(lambda: client.get(where).json()["status"] == "refunded")
    charges = httpx.get(f"{deployment.sandbox_url}/_control/charges", trust_env=False).json()
    assert [(charge["charged_minor"], charge["refunded_minor"]) for charge in charges] == [(3980, 3980)]


def _post(client: httpx.Client, path: str, body: dict[str, object], *, key: str) -> dict[str, object]:
    answer = client.post(path, json=body, headers={"Idempotency-Key": key})
    assert answer.status_code in {201, 202}, answer.text
    made: dict[str, object] = answer.json()
    return made
