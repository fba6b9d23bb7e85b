"""`make run WEB=3`: retries land on any process, Redis is flushed, paused and stopped, callbacks come ten-fold."""

import os
import random
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from shop.devserver.guardian import alive
from tests.conftest import a_folder_of_its_own
from tests.running import RunningShop, until
from tests.sandbox import ROOT
from tests.system.concurrency.conftest import place

KEYS = 60
COPIES = 8

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def shop() -> Iterator[RunningShop]:
    with a_folder_of_its_own() as folder:
        running = RunningShop(folder, web=3)
        yield running
        assert running.stop() == 0


@pytest.fixture
def clients(shop: RunningShop) -> Iterator[list[httpx.Client]]:
    made = [shop.api(url=url) for url in shop.urls]
    yield made
    for client in made:
        client.close()


def order_count(shop: RunningShop) -> int:
    with shop.database() as connection:
        row = connection.execute("SELECT count(*) FROM shop_order").fetchone()
    assert row is not None
    return int(row[0])


def test_a_connection_goes_on_after_a_body_that_nobody_read(
    shop: RunningShop, clients: list[httpx.Client]
) -> None:
    """What the server ended without a word, a pooled client finds out with its next request, the retry."""
    large = b'{"note": "' + b"x" * 300_000 + b'"}'
    headers = {"Content-Type": "application/json"}

    def in_chunks() -> Iterator[bytes]:
        yield from (large[start : start + 10_000] for start in range(0, len(large), 10_000))

    for client in clients:
        for _ in range(5):
            for body in (large, in_chunks()):
                key = uuid4().hex
                refused = client.post("/api/v1/orders", content=body, headers={**headers, "Idempotency-Key": key})
                assert (refused.status_code, refused.json()["code"]) == (413, "payload_too_large")
                assert place(client, key).status_code == 201
            nobody = {"Authorization": "Token of-nobody"}
            assert client.post("/api/v1/orders", content=large, headers={**headers, **nobody}).status_code == 401


def test_sixty_keys_in_eight_copies_over_three_processes(shop: RunningShop, clients: list[httpx.Client]) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    before = order_count(shop)
    keys = [uuid4().hex for _ in range(KEYS)]
    calls = [(rng.choice(clients), key) for key in keys for _ in range(COPIES)]
    rng.shuffle(calls)
    with ThreadPoolExecutor(max_workers=24) as pool:
        answers = list(pool.map(lambda call: (call[1], place(*call)), calls))
    assert {answer.status_code for _, answer in answers} <= {201, 409}
    assert {a.json()["code"] for _, a in answers if a.status_code == 409} <= {"idempotency_in_progress"}
    assert order_count(shop) - before == KEYS
    bodies: dict[str, set[bytes]] = {key: set() for key in keys}
    for key, answer in answers:
        if answer.status_code == 201:
            bodies[key].add(answer.content)
    for key in keys:
        for client in clients:
            replay = place(client, key)
            assert (replay.status_code, replay.headers["Idempotent-Replayed"]) == (201, "true")
            bodies[key].add(replay.content)
    assert Counter(len(found) for found in bodies.values()) == {1: KEYS}
    assert order_count(shop) - before == KEYS


def test_a_body_in_chunks_is_the_same_request(shop: RunningShop, clients: list[httpx.Client]) -> None:
    first = place(clients[0], key := uuid4().hex)

    def in_chunks(*chunks: bytes) -> httpx.Response:
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        return clients[0].post("/api/v1/orders", content=iter(chunks), headers=headers)

    again = in_chunks(b'{"items": [{"sku": "mug",', b' "quantity": 1}]}')
    assert "Content-Length" not in again.request.headers
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert in_chunks(*[b" " * 65_536] * 5).json()["code"] == "payload_too_large"


def test_after_flushall_the_same_key_gets_the_same_bytes(shop: RunningShop, clients: list[httpx.Client]) -> None:
    key = uuid4().hex
    first = place(clients[0], key)
    before = order_count(shop)
    client = shop.redis()
    client.flushall()
    client.close()
    for other in clients:
        assert place(other, key).content == first.content
    assert order_count(shop) == before


def test_with_redis_paused_nothing_waits_for_it_and_nothing_happens_twice(
    shop: RunningShop, clients: list[httpx.Client]
) -> None:
    keys = [uuid4().hex for _ in range(5)]
    before = order_count(shop)
    redis = shop.redis()
    redis.client_pause(timeout=4_000)
    firsts = [place(clients[0], key) for key in keys]
    agains = [place(clients[1], key) for key in keys]
    assert {answer.status_code for answer in firsts} == {201}
    assert [answer.content for answer in agains] == [answer.content for answer in firsts]
    redis.ping()  # answers when the pause is over
    redis.close()
    assert [place(clients[2], key).content for key in keys] == [answer.content for answer in firsts]
    assert order_count(shop) - before == len(keys)


@pytest.mark.parametrize("channel", ["wechat", "alipay"])
def test_ten_fold_parallel_callbacks_are_one_credit(
    shop: RunningShop, clients: list[httpx.Client], channel: str
) -> None:
    with httpx.Client(base_url=shop.sandbox_url, timeout=30, trust_env=False) as sandbox:
        sandbox.post("/_control/faults", json={"duplicates": 10, "parallel": 10}).raise_for_status()
        order = place(clients[0], uuid4().hex).json()
        payment = clients[1].post(
            f"/api/v1/orders/{order['id']}/payment",
            json={"channel": channel},
            headers={"Idempotency-Key": uuid4().hex},
        )
        assert payment.status_code == 201, payment.text
        (attempt,) = payment.json()["attempts"]
        if attempt["next_action"]["type"] == "redirect":
            sandbox.get(attempt["next_action"]["url"], follow_redirects=True).raise_for_status()
        sandbox.post("/_control/pay", json={"out_trade_no": attempt["out_trade_no"]}).raise_for_status()
        address = f"/api/v1/payments/{payment.json()['id']}"
        until(lambda: clients[2].get(address).json()["status"] == "succeeded")

        def acknowledged() -> float:
            """How many genuine notifications of the channel the first process has taken in (all come to it)."""
            lines = clients[0].get("/metrics").text.splitlines()
            wanted = [
                line for line in lines if re.match(rf'payonce_notifications_total{{channel="{channel}"', line)
            ]
            return sum(float(line.rsplit(" ", 1)[1]) for line in wanted)

        until(lambda: acknowledged() >= 10)
        paid = clients[0].get(address).json()
        sandbox.post("/_control/faults", json={"duplicates": 0, "parallel": 0}).raise_for_status()
    assert (paid["paid_minor"], paid["amount"]["amount_minor"]) == (1990, 1990)
    with shop.database() as connection:
        facts = connection.execute(
            "SELECT count(*), sum(amount_minor) FROM payments_observation WHERE attempt_id = %s AND credited",
            [attempt["out_trade_no"]],
        ).fetchone()
        notifications = connection.execute(
            "SELECT count(*) FROM payments_notification WHERE out_trade_no = %s", [attempt["out_trade_no"]]
        ).fetchone()
    assert facts == (1, 1990)
    assert notifications == (1,)


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


def test_with_redis_stopped_all_goes_on(open_folder: Path) -> None:
    """A shop of its own, because this one does not get its Redis back."""
    shop = RunningShop(open_folder, web=1)
    try:
        with shop.api() as client:
            known = uuid4().hex
            first = place(client, known)
            pid = int((shop.folder / "redis" / "redis.pid").read_text())
            os.kill(pid, signal.SIGKILL)
            until(lambda: not alive(pid))
            before = order_count(shop)
            assert place(client, known).content == first.content
            fresh = uuid4().hex
            made, again = place(client, fresh), place(client, fresh)
            assert (made.status_code, again.content) == (201, made.content)
            assert order_count(shop) - before == 1
            assert client.get("/readyz").json()["redis"] is False
    finally:
        assert shop.stop() == 0
    left = subprocess.run(["ps", "-ww", "-eo", "command="], capture_output=True, text=True, check=True).stdout
    assert [line for line in left.splitlines() if str(open_folder) in line] == []
