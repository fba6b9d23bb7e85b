"""Coupons on real PostgreSQL: each user one of a campaign, no code twice."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from shop.models import Campaign, Coupon, Order, Product
from shop.sales import coupons
from tests.integration.shop.conftest import Caller
from tests.threads import at_once

PATH = "coupons/welcome/draw"


def test_each_user_draws_one_until_none_is_left(
    caller: Caller, stranger: Caller, demo: User, campaign: Campaign
) -> None:
    answer, again, by_another_key = (caller.post(PATH, key=key) for key in ("k", "k", "k2"))
    (coupon,) = Coupon.objects.filter(drawn_by=demo)
    assert (answer.status_code, answer.json()) == (201, {"code": coupon.code})
    assert coupon.drawn_at is not None
    assert (again.status_code, again.content, again["Idempotent-Replayed"]) == (201, answer.content, "true")
    assert (by_another_key.status_code, by_another_key.json()) == (201, answer.json())
    assert stranger.post(PATH, key="k").json() != answer.json()

    late = Caller(User.objects.create_user("late"))
    refusal, replay = (late.post(PATH, key="k") for _ in range(2))
    assert (refusal.status_code, refusal.json()["code"]) == (409, "none_left")
    assert (replay.content, replay["Idempotent-Replayed"]) == (refusal.content, "true")
    assert caller.post(PATH, key="k3").json() == answer.json()
    missing = caller.post("coupons/nothing/draw", key="k4")
    assert (missing.status_code, missing.json()["code"]) == (404, "campaign_not_found")
    assert caller.post(PATH).json()["code"] == "idempotency_key_missing"


def test_what_the_database_refuses(demo: User, campaign: Campaign) -> None:
    with pytest.raises(IntegrityError, match="coupon_once_a_campaign_and_user"):
        Coupon.objects.update(drawn_by=demo, drawn_at=timezone.now())
    with pytest.raises(IntegrityError, match="coupon_drawn_by_someone_at_some_time"):
        Coupon.objects.update(drawn_at=timezone.now())
    with pytest.raises(IntegrityError, match="code"):
        Coupon.objects.update(code="the same")


def test_codes_are_long_and_legible() -> None:
    codes = {coupons.new_code() for _ in range(1000)}
    assert len(codes) == 1000
    assert {len(code) for code in codes} == {14}
    assert not set("".join(codes)) & set("01IO")


def test_the_operator_sees_drawn_codes_alone(admin_client: Client, demo: User, campaign: Campaign) -> None:
    with transaction.atomic():
        coupon = coupons.draw(slug="welcome", user_id=demo.pk)
    free = Coupon.objects.get(drawn_by__isnull=True)
    listed = admin_client.get("/admin/shop/coupon/").text
    assert coupon.code in listed
    assert free.code not in listed
    assert free.code not in admin_client.get(f"/admin/shop/coupon/{free.pk}/change/").text
    assert admin_client.get("/admin/shop/coupon/add/").status_code == 403
    assert admin_client.get("/admin/shop/campaign/").status_code == 200
    page = admin_client.get(f"/admin/shop/campaign/{campaign.pk}/change/").text
    assert page.count('<div class="readonly">1</div>') == 2  # one is drawn, one is left


@pytest.fixture
def code(caller: Caller, mug: Product, campaign: Campaign) -> str:
    """The caller's coupon."""
    return str(caller.post(PATH, key="draw").json()["code"])


def ordered(caller: Caller, code: str, *, key: str, quantity: int = 3) -> Any:
    return caller.post("orders", {"items": [{"sku": "mug", "quantity": quantity}], "coupon": code}, key=key)


def test_an_order_with_a_coupon_costs_less_and_its_replay_takes_nothing_more(
    caller: Caller, mug: Product, code: str
) -> None:
    first, again = (ordered(caller, code, key="k") for _ in range(2))
    assert (first.status_code, first.json()["total"]["amount_minor"]) == (201, 5075)
    assert (again.content, again["Idempotent-Replayed"]) == (first.content, "true")
    read = caller.get(f"orders/{first.json()['id']}")
    assert (read.json(), read["ETag"]) == (first.json(), first["ETag"])
    used = Coupon.objects.get(code=code)
    assert used.order is not None
    assert used.order.id.hex == first.json()["id"]


def test_a_refused_coupon_orders_nothing(caller: Caller, stranger: Caller, mug: Product, code: str) -> None:
    ordered(caller, code, key="k")
    for one, name in ((caller, code), (stranger, code), (caller, "nothing")):
        refused, again = (ordered(one, name, key=f"of {name}".replace(" ", "-")) for _ in range(2))
        assert (refused.status_code, refused.json()["code"]) == (409, "coupon_not_usable")
        assert (again.content, again["Idempotent-Replayed"]) == (refused.content, "true")
    mug.refresh_from_db()
    assert (Order.objects.count(), mug.stock) == (1, 97)
    assert ordered(caller, "", key="blank").status_code == 400


def test_orders_at_once_take_a_coupon_once(demo: User, mug: Product, code: str) -> None:
    answers = at_once(*[lambda n=n: ordered(Caller(demo), code, key=f"k{n}") for n in range(4)])
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
    mug.refresh_from_db()
    assert (Order.objects.get().total_minor, mug.stock) == (5075, 97)
