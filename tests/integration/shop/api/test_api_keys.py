"""docs/contract.md, 2: what became of a key, for its owner."""

from typing import Any
from urllib.parse import quote

from shop.models import Product
from tests.integration.shop.conftest import Caller
from tests.running import until

KEY = 'a key/with ?#% and "quotes"'.replace(" ", "_")


def read(caller: Caller, key: str = KEY, **headers: str) -> Any:
    return caller.get(f"idempotency-keys/{quote(key, safe='')}", **headers)


def test_its_owner_sees_each_request_and_what_was_changed(caller: Caller, mug: Product) -> None:
    caller.order(quantity=1, key=KEY)
    caller.order(quantity=1, key=KEY)
    assert caller.order(quantity=2, key=KEY).status_code == 422
    until(lambda: len(read(caller).json()["uses"][0]["log"]) == 3)
    chinese = read(caller, **{"Accept-Language": "zh-Hans"}).json()["uses"][0]["log"][0]
    assert chinese["changed"] == ["“items”的值不同"]
    found = read(caller).json()
    (use,) = found["uses"]
    assert (found["key"], use["call"], use["state"], use["status"]) == (
        KEY,
        "POST /api/v1/orders",
        "finished",
        201,
    )
    assert [line["outcome"] for line in use["log"]] == ["reused", "replayed", "executed"]
    assert [line["changed"] for line in use["log"]] == [["“items” has another value"], [], []]
    assert all(line["request_id"] and line["address"] == "127.0.0.1" for line in use["log"])
    assert use["log_is_current"] is True


def test_each_call_of_the_key_is_there(caller: Caller, mug: Product) -> None:
    order = caller.order(key="both").json()["id"]
    caller.post(f"orders/{order}/cancel", key="both")
    assert [use["call"] for use in read(caller, "both").json()["uses"]] == [
        "POST /api/v1/orders/{order_id}/cancel",
        "POST /api/v1/orders",
    ]


def test_nobody_elses_key_is_there(caller: Caller, stranger: Caller, mug: Product) -> None:
    caller.order(key=KEY)
    for key in (KEY, "unknown", "\0", "键", "k" * 300):
        answer = read(stranger, key)
        assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
        assert answer.json()["code"] == "idempotency_key_not_found"


def test_without_redis_it_says_that_calls_are_missing(caller: Caller, mug: Product, settings: Any) -> None:
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "REDIS": None}
    caller.order(key="k")
    (use,) = read(caller, "k").json()["uses"]
    assert (use["status"], use["log"], use["log_is_current"]) == (201, [], False)
