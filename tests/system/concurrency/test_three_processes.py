"""`make run WEB=3`: retries and sales land on any process; Redis is killed.

Its worker does by timers and jobs what tests/system/money does by hand.
"""

import os
import random
import re
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import uuid4

import httpx
import psutil
import pytest
import redis

from shop.devserver import embedded
from shop.devserver.guardian import alive
from tests.conftest import a_folder_of_its_own
from tests.running import RunningShop, open_payment, order_mug, pay_as_shopper, until
from tests.sandbox import ROOT
from tests.system.concurrency.shop.crowd import Crowd, open_sale

KEYS = 20
COPIES = 6
FEW, MANY = 20, 80  # units of a flash sale, and who wants one


@pytest.fixture(scope="module")
def shop() -> Iterator[RunningShop]:
    with a_folder_of_its_own() as folder:
        running = RunningShop(folder, web=3)
        yield running
        assert running.stop() == 0
        with suppress(redis.ConnectionError), running.redis() as store:
            store.shutdown(nosave=True)  # the one that a test brought back
        left = subprocess.run(["ps", "-ww", "-eo", "command="], capture_output=True, text=True, check=True).stdout
        assert [line for line in left.splitlines() if str(folder) in line] == []


@pytest.fixture
def clients(shop: RunningShop) -> Iterator[list[httpx.Client]]:
    """One a web process."""
    made = [shop.api(url=url) for url in shop.urls]
    yield made
    for client in made:
        client.close()


@pytest.fixture
def api(clients: list[httpx.Client]) -> httpx.Client:
    return clients[0]


@pytest.fixture
def sandbox(shop: RunningShop) -> Iterator[httpx.Client]:
    """The sandbox's control calls; well-behaved again afterwards."""
    with httpx.Client(base_url=shop.sandbox_url, trust_env=False) as client:
        yield client
        client.post("/_control/faults", json={}).raise_for_status()


def order_count(shop: RunningShop) -> int:
    with shop.database() as connection:
        row = connection.execute("SELECT count(*) FROM shop_order").fetchone()
    assert row is not None
    return int(row[0])


def test_a_connection_goes_on_after_a_body_that_nobody_read_and_chunks_are_the_same_request(
    shop: RunningShop, clients: list[httpx.Client]
) -> None:
    """A pooled client would find an ended connection with its next request, the retry."""
    large = b'{"note": "' + b"x" * 300_000 + b'"}'
    small = b'{"items": [{"sku": "mug", "quantity": 1}]}'

    def post(client: httpx.Client, body: bytes | Iterator[bytes], key: str, **more: str) -> httpx.Response:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key, **more}
        return client.post("/api/v1/orders", content=body, headers=headers)

    def in_chunks(body: bytes) -> Iterator[bytes]:
        yield from (body[start : start + 10_000] for start in range(0, len(body), 10_000))

    for client in clients:
        for body in (large, in_chunks(large)):
            refused = post(client, body, key := uuid4().hex)
            assert (refused.status_code, refused.json()["code"]) == (413, "payload_too_large")
            first = order_mug(client, key)
            again = post(client, in_chunks(small), key)
            assert (first.status_code, again.status_code, again.content) == (201, 201, first.content)
            assert again.headers["Idempotent-Replayed"] == "true"
        assert post(client, large, key, Authorization="Token of-nobody").status_code == 401


def test_twenty_keys_in_six_copies_over_three_processes(shop: RunningShop, clients: list[httpx.Client]) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    before = order_count(shop)
    keys = [uuid4().hex for _ in range(KEYS)]
    calls = [(rng.choice(clients), key) for key in keys for _ in range(COPIES)]
    rng.shuffle(calls)
    with ThreadPoolExecutor(max_workers=24) as pool:
        answers = list(pool.map(lambda call: (call[1], order_mug(*call)), calls))
    assert {answer.status_code for _, answer in answers} <= {201, 409}
    assert {a.json()["code"] for _, a in answers if a.status_code == 409} <= {"idempotency_in_progress"}
    assert order_count(shop) - before == KEYS
    bodies: dict[str, set[bytes]] = {key: set() for key in keys}
    for key, answer in answers:
        if answer.status_code == 201:
            bodies[key].add(answer.content)
    for key in keys:
        for client in clients:
            replay = order_mug(client, key)
            assert (replay.status_code, replay.headers["Idempotent-Replayed"]) == (201, "true")
            bodies[key].add(replay.content)
    assert Counter(len(found) for found in bodies.values()) == {1: KEYS}
    assert order_count(shop) - before == KEYS


def test_a_process_that_is_killed_comes_back_and_the_others_go_on(
    shop: RunningShop, clients: list[httpx.Client]
) -> None:
    first = order_mug(clients[1], key := uuid4().hex)
    bound = shop.urls[1].removeprefix("http://")
    # not by `cmdline()` of each child: a backend of PostgreSQL may have ended by then
    killed = [each for each in psutil.process_iter(["cmdline"]) if bound in (each.info["cmdline"] or ())]
    assert killed
    for server in killed:
        with suppress(psutil.NoSuchProcess):  # the one below ends by itself
            server.kill()
    psutil.wait_procs(killed)
    assert order_mug(clients[0], key).content == first.content
    headers = {"Authorization": "Token demo-token"}
    with httpx.Client(transport=httpx.HTTPTransport(retries=7), base_url=shop.urls[1], headers=headers) as patient:
        assert order_mug(patient, key).content == first.content


def becomes(api: httpx.Client, order: dict[str, Any], status: str) -> None:
    until(lambda: api.get(f"/api/v1/orders/{order['id']}").json()["status"] == status)


def test_when_every_notification_is_lost_the_timer_finds_the_payment_and_the_worker_goes_on(
    shop: RunningShop, api: httpx.Client, sandbox: httpx.Client
) -> None:
    sandbox.post("/_control/faults", json={"drop_rate": 1}).raise_for_status()
    order = order_mug(api, uuid4().hex).json()
    payment = open_payment(api, order["id"], "wechat")
    pay_as_shopper(sandbox, payment["attempts"][0])
    handled = "SELECT count(*) FROM payments_paymentevent WHERE payment_id = %s AND handled_at IS NOT NULL"
    with shop.database() as connection:  # its next question falls due
        connection.execute("UPDATE payments_attempt SET next_query_at = now() WHERE next_query_at IS NOT NULL")
        becomes(api, order, "paid")
        assert api.get(f"/api/v1/payments/{payment['id']}").json()["paid_minor"] == 1990
        # by the timer of every second: what has failed would wait for half a minute
        until(lambda: connection.execute(handled, [payment["id"]]).fetchone() == (1,), seconds=20)
        released = connection.execute("SELECT status FROM shop_fulfilment WHERE order_id = %s", [order["id"]])
        assert released.fetchone() == ("released",)


def test_the_sandbox_pays_by_the_number_alone_where_nobody_opened_the_page(
    api: httpx.Client, sandbox: httpx.Client
) -> None:
    order = order_mug(api, uuid4().hex).json()
    [attempt] = open_payment(api, order["id"], "alipay")["attempts"]
    assert attempt["next_action"]["type"] == "redirect"
    number = attempt["out_trade_no"]
    assert sandbox.post("/_control/pay", json={"out_trade_no": number}).status_code == 200
    becomes(api, order, "paid")
    [charge] = [one for one in sandbox.get("/_control/charges").json() if one["out_trade_no"] == number]
    assert charge == {"out_trade_no": number, "channel": "alipay", "charged_minor": 1990, "refunded_minor": 0}
    assert sandbox.post("/_control/pay", json={"out_trade_no": "0" * 32}).status_code == 404


def test_the_readme_s_double_submit_prints_the_same_order_twice(shop: RunningShop) -> None:
    readme = (ROOT / "README.md").read_text()
    (demo,) = re.findall(r"```sh\n(.*?)```", readme, re.S)
    later_each_time = 'date() { echo "$RANDOM$RANDOM"; }\n'  # the second may be over between the two copies
    printed = subprocess.run(
        ["bash", "-c", later_each_time + demo.replace("127.0.0.1:8000", shop.url.removeprefix("http://"))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    orders = re.findall(r'"id":"([0-9a-f]{32})"', printed)
    assert len(orders) == 2, printed
    assert len(set(orders)) == 1
    assert len(re.findall(r"(?i)^idempotent-replayed: true", printed, re.M)) == 1
    assert len(re.findall(r"(?i)^location: /api/v1/orders/", printed, re.M)) == 2


def rush(shop: RunningShop, crowd: Crowd, *, disturb: Callable[[], object] | None = None) -> list[httpx.Response]:
    """Send everybody's first call; `disturb` is called when a tenth of them is through."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    dice = random.Random(seed)
    calls = [(token, dice.choice(shop.urls)) for token in crowd.tokens]
    dice.shuffle(calls)
    through = threading.Semaphore(0)

    def one(call: tuple[str, str]) -> httpx.Response:
        token, url = call
        try:
            return crowd.buy(url, token, key=uuid4().hex)
        finally:
            through.release()

    def after_a_tenth() -> None:
        for _ in range(len(calls) // 10):
            through.acquire()
        if disturb is not None:
            disturb()

    disturber = threading.Thread(target=after_a_tenth)
    disturber.start()
    with ThreadPoolExecutor(max_workers=24) as pool:
        answers = list(pool.map(one, calls))
    disturber.join()
    return answers


@pytest.fixture
def mortal_redis(shop: RunningShop, clients: list[httpx.Client]) -> Iterator[int]:
    """Yield the process of the shop's Redis; afterwards an empty one stands in its place."""
    folder = shop.folder / "redis"
    yield int((folder / "redis.pid").read_text())
    where = ["--port", "0", "--unixsocket", f"{shop.folder}/run/redis/redis.sock", "--dir", str(folder)]
    program = [embedded._redis_binary(), "--daemonize", "yes", "--pidfile", str(folder / "redis.pid")]
    subprocess.run([*program, *where, "--save", ""], check=True, stdout=subprocess.DEVNULL)
    until(lambda: all(client.get("/readyz").json()["redis"] for client in clients))


def test_a_sale_is_sold_to_the_first_and_another_in_the_middle_of_which_redis_is_killed(
    shop: RunningShop, api: httpx.Client, mortal_redis: int
) -> None:
    known, fresh = uuid4().hex, uuid4().hex
    first = order_mug(api, known)
    with shop.database() as database:
        sale = open_sale(database, sku="quiet", units=FEW)
        with Crowd(database, sku="quiet", count=MANY) as crowd:
            answers = rush(shop, crowd)
            crowd.sold_exactly(sale, FEW)
            assert crowd.places(sale) == list(range(1, FEW + 1))
        assert Counter(answer.status_code for answer in answers) == {201: FEW, 409: MANY - FEW}
        assert {answer.json()["code"] for answer in answers if answer.status_code == 409} == {"sold_out"}

        sale = open_sale(database, sku="killed", units=FEW)
        with Crowd(database, sku="killed", count=MANY) as crowd:
            answers = rush(shop, crowd, disturb=lambda: os.kill(mortal_redis, signal.SIGKILL))
            assert {answer.status_code for answer in answers} == {201, 409}
            until(lambda: not alive(mortal_redis))
            crowd.sell_the_rest(shop.urls)
            crowd.sold_exactly(sale, FEW)
    before = order_count(shop)
    assert order_mug(api, known).content == first.content
    made, again = order_mug(api, fresh), order_mug(api, fresh)
    assert (made.status_code, again.content) == (201, made.content)
    assert order_count(shop) - before == 1
    assert api.get("/readyz").json()["redis"] is False
