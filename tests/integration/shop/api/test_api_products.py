"""docs/contract.md, 2, products and likes."""

from typing import Any

from shop.models import Like, Product


def test_products_to_the_letter(caller: Any, mug: Product, poster: Product) -> None:
    assert caller.get("products").json() == [caller.get(f"products/{sku}").json() for sku in ("mug", "poster")]
    mug_said = {"sku": "mug", "name": "Mug", "stock": 100, "likes": 0, "liked": False}
    assert caller.get("products/mug").json() == mug_said | {"price": {"amount_minor": 1990, "currency": "CNY"}}


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
