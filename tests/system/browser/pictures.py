"""`make pictures`: those of README and docs, and every page in .data/pictures. No test.

A page is taken on phone and desktop, in English and Chinese, light and dark. One that fails or sticks out to the
side is printed.
"""

import re
import shutil
import time
from collections import deque
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Page

from tests.running import RunningShop, open_payment, until
from tests.sandbox import ROOT
from tests.system.browser.conftest import SIZES, control, follow, log_in, open_page

pytestmark = pytest.mark.timeout(7200)

FOLDER, DOCS = ROOT / ".data" / "pictures", ROOT / "docs" / "screenshots"
LOOKS = list(product(SIZES, ("en", "zh-CN"), ("light", "dark")))
DAY, NIGHT, DESK = ("phone", "en", "light"), ("phone", "zh-CN", "dark"), ("desktop", "en", "light")
# scene and look -> picture of the docs: one screen of a phone, the whole page of a desktop
FOR_DOCS = {
    ("basket", DAY): "phone-basket",
    ("order-qr-code", DAY): "phone-pay",
    ("order-paid", DAY): "phone-paid",
    ("refund-confirm", DAY): "phone-refund",
    ("flash-sale-waiting", NIGHT): "phone-flash-sale-waiting",
    ("flash-sale-late", NIGHT): "phone-flash-sale-late",
    ("payment-charged-twice", DESK): "admin-payment",
    ("ledger-entry", DESK): "admin-ledger-entry",
    ("admin-idempotency-ledgerentry-statistics", DESK): "admin-ledger-statistics",
}
ID = re.compile(r"/(?:[0-9a-f-]{32,36}|\d+)(?=/)")
NO_PAGE = re.compile(r"/(logout|delete|jsi18n|csv)/|\.(json|csv)$")
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LINKS = "links => links.filter(a => a.origin === location.origin && !a.search).map(a => a.pathname)"


class Scene(NamedTuple):
    """A page in one state; `sale`: units of the flash sale, and minutes until it begins."""

    name: str
    path: str
    who: str = "demo"  # empty: a guest
    sale: tuple[int, int] = (100, -1)


def test_every_page(browser: Browser, shop: RunningShop) -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    scenes = staged(shop)
    admin = open_page(browser, shop)
    log_in(admin, shop, "admin")
    scenes += crawled(admin, "/admin/")
    states = {"": None} | {who: logged_in(browser, shop, who) for who in ("demo", "other", "admin")}
    for size, language, scheme in LOOKS:
        look = {**SIZES[size], "locale": language, "color_scheme": scheme, "reduced_motion": "reduce"}
        pages = {who: open_page(browser, shop, storage_state=state, **look) for who, state in states.items()}
        for scene in sorted(scenes, key=lambda one: one.sale):
            flash_sale(shop, *scene.sale)
            take(pages[scene.who], scene, (size, language, scheme))
        for page in pages.values():
            page.context.close()
    contact_sheet([scene.name for scene in scenes])


def take(page: Page, scene: Scene, look: tuple[str, str, str]) -> None:
    """Write the scene's picture, and the one of the docs if it is one."""
    answer = page.goto(scene.path)
    page.locator("#swagger-ui .loading").wait_for(state="detached")
    name = "-".join((scene.name, *look))
    page.screenshot(path=FOLDER / f"{name}.png", full_page=True, animations="disabled")
    status, wider = answer and answer.status, page.evaluate(WIDER)
    if wider or status != (404 if "no-such" in name else 200):
        print(f"{name}: status {status}, {wider} px too wide")
    if docs := FOR_DOCS.get((scene.name, look)):
        page.screenshot(path=DOCS / f"{docs}.png", full_page=look == DESK, animations="disabled")


def contact_sheet(names: list[str]) -> None:
    """Write index.html: a row for each scene, its looks side by side."""
    style = "<style>img { width: 11%; vertical-align: top; margin: 2px; border: 1px solid }</style>"
    rows = [
        f"<h2>{name}</h2>"
        + "".join(f'<a href="{file}"><img src="{file}" title="{file}" loading="lazy"></a>' for file in files)
        for name in names
        for files in [["-".join((name, *look)) + ".png" for look in LOOKS]]
    ]
    sheet = f'<!doctype html><meta charset="utf-8"><title>Every page</title>{style}{"".join(rows)}'
    (FOLDER / "index.html").write_text(sheet)


def logged_in(browser: Browser, shop: RunningShop, who: str) -> Any:
    """Log in and fill a basket; the browser's state."""
    page = open_page(browser, shop)
    log_in(page, shop, who)
    page.goto("/products/mug")
    follow(page, page.get_by_role("button", name="Add to basket"))
    state = page.context.storage_state()
    page.context.close()
    return state


def crawled(page: Page, start: str) -> Iterator[Scene]:
    """Follow the links from `start`; of pages that differ in an id alone, take the first."""
    seen, waiting = set(), deque([start])
    while waiting:
        path = waiting.popleft()
        name = ID.sub("/id", path).strip("/").replace("/", "-")
        if name in seen or not path.startswith(start) or NO_PAGE.search(path):
            continue
        seen.add(name)
        answer = page.goto(path)
        if answer is not None and answer.status == 200:
            yield Scene(name, path, "admin")
            waiting.extend(page.eval_on_selector_all("a[href]", LINKS))


def flash_sale(shop: RunningShop, units: int, minutes: int) -> None:
    """Announce the sale again, unless it is announced so."""
    begins = "starts_at = now() + %s * interval '1 minute'"
    with shop.database() as connection:
        changed = connection.execute(
            f"UPDATE shop_flashsale SET version = version + 1, units = %s, {begins}"
            " WHERE units <> %s OR (starts_at > now()) <> %s",
            [units, minutes, units, minutes > 0],
        )
    if changed.rowcount:
        with shop.redis() as redis:
            for key in redis.scan_iter("*:flash:*"):  # a sale that it knows, it runs to the end
                redis.delete(key)
        time.sleep(2)  # processes look for a change once a second


def staged(shop: RunningShop) -> list[Scene]:
    """Put everything on the stage; return the pages of the shop, the sandbox and the admin."""
    api = shop.api()

    def post(path: str, body: dict[str, Any], key: str = "") -> Any:
        return api.post(f"/api/v1/{path}", json=body, headers={"Idempotency-Key": key or uuid4().hex}).json()

    def order(*channels: str, paid: bool = True) -> str:
        items = [{"sku": "mug", "quantity": 2}, {"sku": "poster", "quantity": 1}]
        made: str = post("orders", {"items": items})["id"]
        opened = [open_payment(api, made, channel) for channel in channels]
        for attempt in opened[-1]["attempts"] if paid and opened else ():
            control(shop, "pay", {"out_trade_no": attempt["out_trade_no"]})
        if paid and opened:
            until(lambda: api.get(f"/api/v1/payments/{opened[-1]['id']}").json()["paid_minor"])
        return made

    def payment(made: str) -> Any:
        return api.get(f"/api/v1/payments/{api.get(f'/api/v1/orders/{made}').json()['payment']}").json()

    control(shop, "faults", {"pay_closed": True})  # a second payment is on its way by then
    key = uuid4().hex
    for quantity in (1, 1, 2):  # executed, replayed, refused
        post("orders", {"items": [{"sku": "mug", "quantity": quantity}]}, key)
    orders = {"unpaid": order(), "paid": order("wechat"), "charged-twice": order("alipay", "wechat")}
    orders |= {"refunded": order("stripe"), "closed": order()}
    back = {"amount_minor": 550, "reason": "One was chipped"}
    post(f"payments/{payment(orders['refunded'])['id']}/refunds", back)
    post(f"orders/{orders['closed']}/cancel", {})
    flash_sale(shop, 1, -1)
    post("flash-sales/sneaker/orders", {})
    orders |= {name: order(channel, paid=False) for name, channel in (("qr-code", "wechat"), ("card", "stripe"))}
    control(shop, "faults", {"wrong_amount": True})
    wrong = order("wechat", paid=False)
    control(shop, "pay", {"out_trade_no": payment(wrong)["attempts"][0]["out_trade_no"]})
    control(shop, "faults", {"wrong_amount": False, "http_500_rate": 1})
    orders["uncertain"] = order("stripe", paid=False)
    cashiers = {
        name: f"{shop.sandbox_url}/pay/{payment(orders[name])['attempts'][-1]['out_trade_no']}"
        for name in ("qr-code", "card", "paid")
    }
    cases = {
        name: f"/admin/payments/payment/{payment(orders[name])['id']}/change/"
        for name in ("charged-twice", "uncertain")
    }
    found, shops = "/admin/payments/payment/find/?q=", ("products-mug", "orders", "coupons", "basket", "api-docs")
    api.close()
    return [
        Scene("shop", "/"),
        *(Scene(name, f"/{name.replace('-', '/')}{'/' if name == 'api-docs' else ''}") for name in shops),
        *(Scene(f"order-{state}", f"/orders/{made}") for state, made in {**orders, "wrong-amount": wrong}.items()),
        Scene("refund-confirm", f"/orders/{orders['paid']}/refund?amount=5.50&reason=One+was+chipped"),
        Scene("cancel-confirm", f"/orders/{orders['unpaid']}/cancel"),
        Scene("api-docs-problems", "/api/docs/problems"),
        Scene("guest-product", "/products/mug", ""),
        Scene("login", "/accounts/login/", ""),
        Scene("no-such-page", "/nowhere", ""),
        Scene("flash-sale", "/flash-sales/sneaker", "other"),
        Scene("flash-sale-bought", "/flash-sales/sneaker"),
        Scene("flash-sale-waiting", "/flash-sales/sneaker", "other", (100, 66)),
        Scene("flash-sale-late", "/flash-sales/sneaker", "other", (1, -1)),
        Scene("sandbox", f"{shop.sandbox_url}/", ""),
        *(Scene(f"sandbox-{name}", address, "") for name, address in cashiers.items()),
        Scene("sandbox-declined", f"{cashiers['card']}?declined=insufficient_funds", ""),
        Scene("admin-login", "/admin/login/", ""),
        *(Scene(f"payment-{name}", address, "admin") for name, address in cases.items()),
        Scene("search", f"{found}demo", "admin"),
        Scene("ledger-entry", f"{found}{key}", "admin"),
    ]
