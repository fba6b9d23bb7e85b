"""Every page by axe-core's rules, on phone and desktop, in light and dark."""

import re
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Page, expect

from idempotency.locks.engine.session import lock_key
from tests.running import RunningShop, open_payment, until
from tests.system.browser.conftest import SIZES, SMALL, Visit, control, fits, follow, is_accessible, log_in
from tests.system.browser.test_purchase import ORDER, arrived, buy, choose


@pytest.fixture
def visitor(visit: Visit, request: pytest.FixtureRequest) -> Page:
    return visit(locale=getattr(request, "param", "en"), **SIZES["phone"])


def test_before_a_login(visitor: Page) -> None:
    for path in ("/", "/products/mug", "/accounts/login/", "/basket", "/nowhere"):
        visitor.goto(path)
        is_accessible(visitor)


@pytest.mark.parametrize("visitor", ["zh-CN"], indirect=True)
def test_from_the_product_to_the_refund(visitor: Page, shop: RunningShop) -> None:
    log_in(visitor, shop)
    for path in ("/", "/products/mug", "/flash-sales/sneaker", "/coupons"):
        visitor.goto(path)
        is_accessible(visitor)
    if visitor.locator(".coupons form").is_visible():  # the demo user's first visit
        follow(visitor, visitor.locator(".coupons form button"))
        is_accessible(visitor)
    order_id = buy(visitor)
    is_accessible(visitor)
    choose(visitor, "alipay")
    arrived(visitor, re.compile(re.escape(f"{shop.sandbox_url}/pay/")))
    number = visitor.url.rsplit("/", 1)[1]
    visitor.goto(f"/orders/{order_id}")
    is_accessible(visitor)
    control(shop, "pay", {"out_trade_no": number})
    expect(visitor.locator(".order[data-final]")).to_be_visible()
    is_accessible(visitor)
    for path in (f"/orders/{order_id}/refund?amount=1", "/orders"):
        visitor.goto(path)
        is_accessible(visitor)


def test_a_closed_order_and_a_qr_code(visitor: Page, shop: RunningShop) -> None:
    log_in(visitor, shop)
    buy(visitor)
    choose(visitor, "wechat")
    until(visitor.locator(".qr, .pay a.button").first.is_visible)
    is_accessible(visitor)
    follow(visitor, visitor.locator(".cancel a"))
    is_accessible(visitor)
    visitor.locator(".button-danger").click()
    arrived(visitor, ORDER)
    expect(visitor.locator(".order[data-final]")).to_be_visible()
    is_accessible(visitor)


def ordered(api: httpx.Client, sku: str) -> str:
    order = {"items": [{"sku": sku, "quantity": 2}]}
    answer = api.post("/api/v1/orders", json=order, headers={"Idempotency-Key": str(uuid4())})
    return str(answer.raise_for_status().json()["id"])


def test_the_admins_own_pages_fit_too(visitor: Page, shop: RunningShop, api: httpx.Client) -> None:
    opened, held = open_payment(api, ordered(api, "mug")), "order:" + "7" * 200
    log_in(visitor, shop, "admin")
    with shop.database() as connection:
        entry = connection.execute("SELECT max(id) FROM idempotency_ledgerentry").fetchone()
        assert entry is not None
        connection.execute("SELECT pg_advisory_lock(%s)", [lock_key(held)])
        for path in (
            "",
            f"payments/payment/{opened['id']}/change/",
            "payments/journalentry/trial-balance/",
            *(
                f"idempotency/ledgerentry/{page}"
                for page in ("statistics/", f"locks/?name={held}", f"{entry[0]}/change/")
            ),
        ):
            visitor.goto(f"/admin/{path}")
            is_accessible(visitor)
            fits(visitor)


LONG = [
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "搪瓷杯" * 30,
    98765432,
]
DOUBLED = {"phone, enlarged to the double": {"viewport": {"width": 195, "height": 422}}}


@pytest.fixture
def long_name(shop: RunningShop) -> Iterator[None]:
    change = "UPDATE shop_product SET (name, name_zh, price_minor) = (%s, %s, %s) WHERE sku = 'poster'"
    with shop.database() as connection:
        before = connection.execute("SELECT name, name_zh, price_minor FROM shop_product WHERE sku = 'poster'")
        row = before.fetchone()
        assert row is not None
        connection.execute(change, LONG)
        yield
        connection.execute(change, row)


@pytest.mark.usefixtures("long_name")
@pytest.mark.parametrize("visitor", ["en", "zh-CN"], indirect=True)
def test_long_names_and_amounts_fit(visitor: Page, shop: RunningShop, api: httpx.Client) -> None:
    def look(*paths: str) -> None:
        for path in paths:
            visitor.goto(path)
            fits(visitor, DOUBLED | SMALL)

    look("/products/poster", "/accounts/login/", "/nowhere")
    log_in(visitor, shop)
    order = ordered(api, "poster")
    visitor.goto("/products/poster")
    follow(visitor, visitor.locator("form.buy .button-quiet"))
    look("/", "/products/poster", "/basket", f"/orders/{order}", f"/orders/{order}/cancel", "/orders")
    look("/coupons", "/flash-sales/sneaker")
    visitor.set_viewport_size(SMALL["small phone"]["viewport"])
    assert visitor.get_by_role("button", name=re.compile("Log out|退出")).bounding_box()["x"] < 320 - 40  # type: ignore[index]
