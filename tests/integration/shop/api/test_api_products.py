"""docs/contract.md, 2, products and likes."""

import itertools
from typing import Any

import pytest

from shop.models import Like, Product
from shop.platform.parsing import Negotiation
from tests.integration.shop.conftest import Caller


def test_products_to_the_letter(caller: Any, mug: Product, poster: Product) -> None:
    assert caller.get("products").json() == [caller.get(f"products/{sku}").json() for sku in ("mug", "poster")]
    assert caller.get("products").json() == [
        {
            "sku": "mug",
            "name": "Mug",
            "price": {"amount_minor": 1990, "currency": "CNY"},
            "stock": 100,
            "likes": 0,
            "liked": False,
        },
        {
            "sku": "poster",
            "name": "Poster",
            "price": {"amount_minor": 4500, "currency": "CNY"},
            "stock": 10,
            "likes": 0,
            "liked": False,
        },
    ]


def test_liking_is_a_constant(caller: Any, stranger: Any, mug: Product) -> None:
    for _ in range(3):
        response = caller.http.put("/api/v1/products/mug/like")
        assert (response.status_code, response.content) == (204, b"")
    stranger.http.put("/api/v1/products/mug/like")

    assert Like.objects.count() == 2
    assert caller.get("products/mug").json()["likes"] == 2
    assert caller.get("products/mug").json()["liked"] is True

    for _ in range(3):
        assert caller.http.delete("/api/v1/products/mug/like").status_code == 204
    assert caller.get("products/mug").json()["liked"] is False
    assert caller.get("products/mug").json()["likes"] == 1


def test_liking_nothing_is_a_problem(caller: Any) -> None:
    for call in (caller.http.put, caller.http.delete):
        response = call("/api/v1/products/nothing/like")
        assert (response.status_code, response.json()["code"]) == (404, "product_not_found")


def test_who_takes_anything_is_answered_as_by_the_framework(
    caller: Caller, mug: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ["/api/v1/products", "/api/v1/products?format=json", "/api/v1/products?format=xml"]
    accepts = [None, "*/*", "application/json; indent=2", "text/html, */*;q=0.1", "text/html"]

    def answer(accept: str | None, path: str) -> tuple[int, str, bytes]:
        headers = {} if accept is None else {"Accept": accept}
        response = caller.http.get(path, headers={"X-Request-Id": "trace-0042", **headers})
        return response.status_code, response["Content-Type"], response.content

    asked = list(itertools.product(accepts, paths))
    ours = [answer(*each) for each in asked]
    monkeypatch.delattr(Negotiation, "select_renderer")
    assert ours == [answer(*each) for each in asked]
    for (accept, path), (status, *_) in zip(asked, ours, strict=True):
        assert status == (404 if path.endswith("xml") else 406 if accept == "text/html" else 200)
