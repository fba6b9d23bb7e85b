"""Orders of the API (docs/contract.md, 2), and its keys through the whole stack."""

import base64
import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from shop import stock
from shop.models import Order, OrderItem, Product, StockStrategy


def test_an_order_to_the_letter(caller: Any, mug: Product, poster: Product) -> None:
    body = {"items": [{"sku": "poster", "quantity": 1}, {"sku": "mug", "quantity": 2}]}
    response = caller.post("orders", body, key="k1")

    assert response.status_code == 201
    order = dict(response.json())
    assert re.fullmatch("[0-9a-f]{32}", order["id"])
    assert uuid.UUID(order["id"]).version == 7
    created, expires = (datetime.fromisoformat(order.pop(name)) for name in ("created_at", "expires_at"))
    assert expires - created == timedelta(minutes=30)
    assert abs(datetime.now(UTC) - created) < timedelta(minutes=5)
    assert order == {
        "id": order["id"],
        "status": "pending",
        "version": 1,
        "total": {"amount_minor": 8480, "currency": "CNY"},
        "items": [
            {"sku": "poster", "quantity": 1, "price": {"amount_minor": 4500, "currency": "CNY"}},
            {"sku": "mug", "quantity": 2, "price": {"amount_minor": 1990, "currency": "CNY"}},
        ],
        "note": "",
        "payment": None,
    }
    assert response["Location"] == f"/api/v1/orders/{order['id']}"
    assert response["ETag"] == '"1"'
    assert sorted(Product.objects.values_list("sku", "stock", "version")) == [
        ("mug", 98, 2),
        ("poster", 9, 2),
    ]
    Product.objects.update(price_minor=9999, name="Dearer")
    assert caller.get(f"orders/{order['id']}").json() == response.json(), "as it was placed"
    assert {item.name for item in OrderItem.objects.all()} == {"Mug", "Poster"}


BAD_BODIES = {
    "no items": {},
    "not a list": {"items": "mug"},
    "quantity zero": {"items": [{"sku": "mug", "quantity": 0}]},
    "quantity of no stock at all": {"items": [{"sku": "mug", "quantity": 10**15 + 1}]},
    "quantity in a text": {"items": [{"sku": "mug", "quantity": "1"}]},
    "quantity with a fraction": {"items": [{"sku": "mug", "quantity": 1.0}]},
    "quantity true": {"items": [{"sku": "mug", "quantity": True}]},
    "sku twice": {"items": [{"sku": "mug", "quantity": 1}, {"sku": "mug", "quantity": 2}]},
    "sku no slug": {"items": [{"sku": "a b", "quantity": 1}]},
    "21 items": {"items": [{"sku": f"s{n}", "quantity": 1} for n in range(21)]},
    "note too long": {"items": [{"sku": "mug", "quantity": 1}], "note": "x" * 501},
}


# how deep is too deep differs between the versions of Python; neither body is whole, so each is refused in any case
BODIES_THAT_CANNOT_BE_TAKEN = [
    b"[" * 50_000,
    b'{"a":' * 5_000,
    rb'{"items": [{"sku": "mug", "quantity": 1}], "note": "\uD83d"}',
    rb'{"items": [{"sku": "mug", "quantity": 1}], "\udfff": 1}',
]


@pytest.mark.usefixtures("collector_off")
def test_a_malformed_body_is_400_and_burns_no_key(caller: Any, mug: Product) -> None:
    for what, body in BAD_BODIES.items():
        response = caller.post("orders", body, key="k1")
        assert (response.status_code, response["Content-Type"]) == (400, "application/problem+json"), what
    for raw in BODIES_THAT_CANNOT_BE_TAKEN:
        response = caller.http.generic(
            "POST", "/api/v1/orders", raw, content_type="application/json", headers={"Idempotency-Key": "k1"}
        )
        assert (response.status_code, response["Content-Type"]) == (400, "application/problem+json")
        assert response.json()["code"] == "malformed"
    assert not Order.objects.exists()
    assert caller.order(key="k1").status_code == 201


def test_a_pair_of_surrogates_is_text_and_a_compressed_body_is_415(mug: Product, caller: Any) -> None:
    def post(**headers: str) -> Any:
        body = rb'{"items": [{"sku": "mug", "quantity": 1}], "note": "\ud83d\ude00"}'
        headers["Idempotency-Key"] = "k1"
        return caller.http.generic("POST", "/api/v1/orders", body, "application/json", headers=headers)

    refused = post(**{"Content-Encoding": "gzip"})
    assert (refused.status_code, refused.json()["code"]) == (415, "unsupported_media_type")
    assert refused["Accept-Encoding"] == "identity"
    assert post(**{"Content-Encoding": "Identity"}).json()["note"] == "\U0001f600"


def test_a_refusal_takes_nothing_and_is_replayed(
    caller: Any, mug: Product, poster: Product, sneaker: Product
) -> None:
    Product.objects.create(sku="import", name="Import", price_minor=100, currency="USD", stock=5)
    for sku, quantity, status, code in (
        ("poster", 11, 409, "out_of_stock"),
        ("sneaker", 1, 409, "flash_sale_only"),
        ("nothing", 1, 404, "product_not_found"),
        ("import", 1, 409, "mixed_currency"),
    ):
        body = {"items": [{"sku": "mug", "quantity": 1}, {"sku": sku, "quantity": quantity}]}
        first = caller.post("orders", body, key=sku)
        Product.objects.filter(sku="poster").update(stock=1000)
        second = caller.post("orders", body, key=sku)
        assert (first.status_code, first.json()["code"]) == (status, code)
        assert first.json().get("sku", sku) == sku
        assert (second.status_code, second.content) == (status, first.content)
        assert second["Idempotent-Replayed"] == "true"
    assert not Order.objects.exists()
    mug.refresh_from_db()
    assert (mug.stock, mug.version) == (100, 1)


def test_more_than_any_stock_is_out_of_stock(caller: Any, poster: Product) -> None:
    for strategy in StockStrategy:
        stock.arrange(product_id=poster.pk, strategy=strategy, segments=2)
        for quantity in (1_000_001, 2**31, 10**15):
            refused = caller.order("poster", quantity, key=f"{strategy}-{quantity}")
            assert (refused.status_code, refused.json()["code"]) == (409, "out_of_stock")


class TestReading:
    def test_etag_and_if_none_match(self, caller: Any, mug: Product) -> None:
        path = f"orders/{caller.order(key='k1').json()['id']}"

        assert caller.get(path)["ETag"] == '"1"'
        fresh = caller.get(path, **{"If-None-Match": 'W/"1", "7"'})
        assert (fresh.status_code, fresh.content, fresh["ETag"]) == (304, b"", '"1"')
        assert caller.get(path, **{"If-None-Match": "*"}).status_code == 304
        assert caller.get(path, **{"If-None-Match": '"2"'}).status_code == 200

    def test_pages_hold_every_order_once_while_new_ones_arrive(
        self, caller: Any, stranger: Any, mug: Product, django_assert_num_queries: Any
    ) -> None:
        placed = [caller.order(key=f"k{n}").json()["id"] for n in range(7)]
        with django_assert_num_queries(4):  # token, orders, items, payments
            page = caller.get("orders?page_size=3").json()
        seen = [order["id"] for order in page["results"]]
        newcomer = caller.order(key="late").json()["id"]
        while page["next"]:
            page = caller.http.get(page["next"]).json()
            seen += [order["id"] for order in page["results"]]

        assert seen == sorted(placed, reverse=True)
        assert newcomer not in seen
        assert stranger.get("orders").json()["results"] == []
        for position in (b"p=zzz", b"o=zzz", b"p=" + b"9" * 400):
            broken = caller.get(f"orders?cursor={base64.b64encode(position).decode()}")
            assert (broken.status_code, broken["Content-Type"]) == (404, "application/problem+json")
        assert caller.get("orders?page_size=1").json()["results"][0]["id"] == newcomer


class TestNote:
    @pytest.fixture
    def path(self, caller: Any, mug: Product) -> str:
        return f"/api/v1/orders/{caller.order(key='k1').json()['id']}"

    def patch(self, caller: Any, path: str, note: Any = "ring twice", **headers: str) -> Any:
        return caller.http.patch(path, {"note": note}, format="json", headers=headers)

    def test_a_current_version_may_write(self, caller: Any, path: str) -> None:
        for version, header in enumerate(('"1"', '"7", "2"', "*"), start=2):
            response = self.patch(caller, path, f"note {version}", **{"If-Match": header})
            assert (response.status_code, response["ETag"]) == (200, f'"{version}"')
            assert (response.json()["note"], response.json()["version"]) == (f"note {version}", version)
            assert caller.http.get(path).json() == response.json()

    def test_no_other_version_and_no_bad_note(self, caller: Any, path: str) -> None:
        missing = self.patch(caller, path)
        assert (missing.status_code, missing.json()["code"]) == (428, "precondition_required")
        for header in ('"2"', 'W/"1"', "nonsense", '"x"', '"' + "9" * 40 + '"'):
            response = self.patch(caller, path, **{"If-Match": header})
            assert (response.status_code, response.json()["code"]) == (412, "version_conflict")
            assert response["ETag"] == '"1"'
        for note in ("x" * 501, None, {"a": 1}):
            assert self.patch(caller, path, note, **{"If-Match": '"1"'}).status_code == 400
        assert caller.http.get(path).json()["note"] == ""


def test_the_schema_documents_what_befalls_every_call(client: Any) -> None:
    document = client.get("/api/schema/?format=json").json()
    calls = {call["operationId"]: call for calls in document["paths"].values() for call in calls.values()}
    for name, call in calls.items():
        wanted = {"401", "406", "429", "503"}
        keyed = any(sent["name"] == "Idempotency-Key" for sent in call.get("parameters", ()))
        wanted |= {"400", "403", "409", "410", "413", "415", "422"} if keyed else set()
        assert wanted <= call["responses"].keys(), name
        for status, answer in call["responses"].items():
            if status >= "400":
                assert [*answer["content"]] == ["application/problem+json"], (name, status)
                said = answer["description"].split(", ")
                assert len(set(said)) == len(said), (name, status)
            elif keyed:
                assert "Idempotent-Replayed" in answer["headers"], (name, status)
    assert "`out_of_stock`" in calls["orders_create"]["responses"]["409"]["description"]
    for call in calls.values():
        for status, answer in call["responses"].items():
            for content in answer.get("content", {}).values():
                for example in content.get("examples", {}).values():
                    shape = document["components"]["schemas"][content["schema"]["$ref"].rsplit("/", 1)[1]]
                    assert set(shape["required"]) <= example["value"].keys(), (call["operationId"], status)
                    assert example["value"].get("type", "http").startswith("http")


def test_an_order_is_named_by_its_id_however_it_is_written(caller: Any, stranger: Any, mug: Product) -> None:
    order = uuid.UUID(caller.order(key="k1").json()["id"])
    for named, status in (
        (str(order), 200),
        (order.hex.upper(), 200),
        (str(uuid.uuid4()), 404),
        ("nowhere", 404),
    ):
        assert caller.get(f"orders/{named}").status_code == status
        path = f"orders/{named}/cancel"
        assert APIClient().post(f"/api/v1/{path}").status_code == 401
        assert caller.post(path).json()["code"] == "idempotency_key_missing"
        answers = [stranger.post(path, key=f"of-{named}") for _ in range(2)]
        assert [(one.status_code, one.json()["code"]) for one in answers] == [(404, "order_not_found")] * 2
        assert answers[1]["Idempotent-Replayed"] == "true", "404 of a named resource is kept"


def test_no_cache_keeps_an_answer_or_gives_it_to_another_caller(caller: Any, mug: Product) -> None:
    first, replay = caller.order(key="k1"), caller.order(key="k1")
    of = {"If-None-Match": first["ETag"]}
    answers = {
        201: first,
        200: caller.get("products"),
        304: caller.get(f"orders/{first.json()['id']}", **of),
        400: caller.post("orders", {"items": []}, key="k2"),
        401: APIClient().get("/api/v1/orders"),
        404: caller.get("nowhere"),
        405: caller.http.delete("/api/v1/orders"),
        413: caller.post("orders", {"note": "n" * 300_000}, key="k3"),
    }
    assert {status: answer.status_code for status, answer in answers.items()} == {one: one for one in answers}
    assert replay["Idempotent-Replayed"] == "true"
    for answer in (*answers.values(), replay):
        assert answer["Cache-Control"] == "no-store"
        assert "authorization" in {name.strip().lower() for name in answer["Vary"].split(",")}
