"""The stream of an order's states: pushed over Redis, looked up without it, bounded."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection, connections, transaction
from django.test import AsyncClient, Client
from rest_framework.authtoken.models import Token

from shop.models import Order, OrderStatus, Product
from shop.orders import changes
from shop.web import live
from tests.conftest import hanging
from tests.integration.shop.conftest import placed
from tests.integration.shop.settling import on_payment
from tests.running import until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def order(demo: User, mug: Product) -> Order:
    return placed(demo, mug=1)


class Reader:
    """Reads a stream in a thread of its own, as a browser would beside everything else."""

    def __init__(self, user: User, order: Order, **headers: str) -> None:
        client = Client()
        if "Authorization" not in headers:
            client.force_login(user)
        self.client = client
        self.response: Any = client.get(f"/api/v1/orders/{order.id.hex}/events", headers=headers)
        assert self.response.status_code == 200, self.response.content
        self.states: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.news = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        try:
            for part in self.response.streaming_content:
                fields = dict(line.split(": ", 1) for line in part.decode().strip().splitlines() if ": " in line)
                if fields.get("event") == "status":
                    self.ids.append(fields["id"])
                    self.states.append(json.loads(fields["data"]))
                    self.news.release()
        finally:
            self.response.close()
            connections.close_all()

    def next(self) -> dict[str, Any]:
        assert self.news.acquire(timeout=20), "nothing came"
        return self.states[-1]

    def ended(self) -> None:
        self.thread.join(30)
        assert not self.thread.is_alive()


def pay(order: Order) -> None:
    with transaction.atomic():
        assert on_payment(order_id=order.id, event="paid")


@pytest.fixture(autouse=True)
def _all_places_are_free_again() -> Iterator[None]:
    yield
    until(lambda: not live._taken)  # else a stream has kept its place


def test_the_page_hears_when_the_order_is_paid(demo: User, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "BEAT_SECONDS", 60.0)  # only a message can be the reason
    reader = Reader(demo, order)
    first = reader.next()
    assert (first["status"], first["final"], first["order"]) == ("pending", False, order.id.hex)
    pay(order)
    last = reader.next()
    assert (last["status"], last["final"], last["version"]) == ("paid", True, 2)
    reader.ended()
    assert reader.response.headers["Content-Type"] == "text/event-stream"
    assert reader.response.headers["Cache-Control"] == "no-store"


def test_behind_asgi_the_page_polls(demo: User, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    """Django collects a stream there before it sends any of it."""
    monkeypatch.setattr(live, "STREAM_SECONDS", 0.0)
    sync, client = Client(), AsyncClient()
    sync.force_login(demo)
    client.cookies = sync.cookies
    assert async_to_sync(client.get)(f"/api/v1/orders/{order.id.hex}/events").status_code == 204


def test_a_state_that_the_browser_has_is_not_sent_again(demo: User, order: Order) -> None:
    reader = Reader(demo, order)
    reader.next()
    again = Reader(demo, order, **{"Last-Event-ID": reader.ids[0], "Accept": "text/event-stream"})
    pay(order)
    assert again.next()["status"] == "paid"
    for each in (reader, again):
        each.ended()
    assert [state["status"] for state in again.states] == ["paid"]


def test_a_change_that_was_rolled_back_is_not_published(
    demo: User, order: Order, redis_server: redis.Redis
) -> None:
    with changes.topic(order.id, redis_server).listen() as messages:
        assert messages.take(wait_seconds=20) is None  # from now on it hears everything
        with transaction.atomic():
            assert on_payment(order_id=order.id, event="paid")
            transaction.set_rollback(True)
        pay(order)
        assert messages.take(wait_seconds=20) == "changed"
        with pytest.raises(TimeoutError):
            messages.take(wait_seconds=0)
    assert Order.objects.get().version == 2


def test_without_redis_it_looks_by_itself(
    demo: User, order: Order, redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "BEAT_SECONDS", 0.05)
    with hanging(redis_server):
        reader = Reader(demo, order)
        reader.next()
        pay(order)
        assert reader.next()["status"] == "paid"
        reader.ended()


def opened_by(user: User) -> Any:
    """The answer to one more reader of the user's newest order, which nobody reads yet."""
    client = Client()
    client.force_login(user)
    order = Order.objects.filter(user=user).latest("id")
    return client.get(f"/api/v1/orders/{order.id.hex}/events", headers={"Accept": "text/event-stream"})


def test_one_user_has_two_at_most_and_leaves_room_for_others(demo: User, other: User, order: Order) -> None:
    opened = [opened_by(demo) for _ in range(live.STREAMS_MAX_A_USER)]
    third = opened_by(demo)
    assert (third.status_code, third.content) == (204, b"")  # a browser does not come again, and polls
    placed(other, mug=1)
    opened.append(opened_by(other))
    assert opened[-1].status_code == 200
    for response in opened:
        response.close()  # none of them was ever read
        response.close()
    once_more = opened_by(demo)
    assert once_more.status_code == 200
    once_more.close()


def test_a_process_has_only_so_many(demo: User, order: Order) -> None:
    opened = []
    for name in "cdefg":
        user = User.objects.create_user(name, password=name)
        placed(user, mug=1)
        opened.append(opened_by(user))
    assert [response.status_code for response in opened] == [200] * live.STREAMS_MAX + [204]
    for response in opened:
        response.close()


def test_the_headers_alone_take_no_place(demo: User, order: Order) -> None:
    client = Client()
    client.force_login(demo)
    asked = [client.head(f"/api/v1/orders/{order.id.hex}/events") for _ in range(live.STREAMS_MAX + 1)]
    for answer in asked:
        assert (answer.status_code, answer["Content-Type"]) == (200, "text/event-stream")
        assert (b"".join(answer), "Content-Length" in answer) == (b"", False)


def test_it_is_the_owners_alone(order: Order, other: User) -> None:
    path = f"/api/v1/orders/{order.id.hex}/events"
    assert Client().get(path).status_code == Client().head(path).status_code == 401
    stranger = Client()
    stranger.force_login(other)
    assert stranger.head(path).status_code == 404
    answer = stranger.get(path, headers={"Accept": "text/event-stream"})
    assert (answer.status_code, json.loads(answer.content)["code"]) == (404, "order_not_found")


def test_a_stream_ends_after_its_time(demo: User, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STREAM_SECONDS", 0.0)
    reader = Reader(demo, order)
    reader.ended()
    assert [state["status"] for state in reader.states] == ["pending"]
    assert Order.objects.get().status == OrderStatus.PENDING
    assert not connection.in_atomic_block


def change_password(demo: User) -> None:
    demo.set_password("another")
    demo.save()


OVER: dict[str, Callable[[User, Reader], Any]] = {
    "deactivated": lambda demo, reader: User.objects.update(is_active=False),
    "logged out": lambda demo, reader: reader.client.logout(),
    "expired": lambda demo, reader: Session.objects.update(expire_date=datetime(2026, 1, 1, tzinfo=UTC)),
    "of an earlier password": lambda demo, reader: change_password(demo),
    "without token": lambda demo, reader: Token.objects.all().delete(),
}


@pytest.mark.parametrize(
    ("by_token", "now_they_are"),
    [
        *((False, way) for way in OVER if way != "without token"),
        *((True, way) for way in ("deactivated", "of an earlier password", "without token")),
    ],
)
def test_the_stream_of_a_caller_who_is_no_longer_let_in_ends(
    demo: User, order: Order, monkeypatch: pytest.MonkeyPatch, by_token: bool, now_they_are: str
) -> None:
    monkeypatch.setattr(live, "BEAT_SECONDS", 0.05)
    key = Token.objects.create(user=demo).key
    reader = Reader(demo, order, **({"Authorization": f"Token {key}"} if by_token else {}))
    reader.next()
    OVER[now_they_are](demo, reader)
    reader.ended()
    assert [state["status"] for state in reader.states] == ["pending"]
