"""A purchase in a real browser, however often a button is pressed: one order, one charge."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import httpx
from playwright.sync_api import Locator, Page, Route, expect
from playwright.sync_api import TimeoutError as TimedOut

from tests.running import RunningShop, until
from tests.system.browser.conftest import Visit, control, follow

ORDER = re.compile(r"/orders/([0-9a-f]{32})")


def order_ids(shop: RunningShop) -> set[str]:
    with shop.database() as connection:
        return {row[0].hex for row in connection.execute("SELECT id FROM shop_order").fetchall()}


def charges(shop: RunningShop) -> dict[str, dict[str, Any]]:
    said = httpx.get(f"{shop.sandbox_url}/_control/charges", trust_env=False).json()
    return {charge["out_trade_no"]: charge for charge in said}


@contextlib.contextmanager
def held_answers(shop: RunningShop) -> Iterator[None]:
    """The provider does what it is asked, and its answers wait till the end of the block."""
    control(shop, "faults", {"hold_answers": True})
    try:
        yield
    finally:
        control(shop, "faults", {"hold_answers": False})


def press_on(page: Page) -> Locator:
    """The button of the page for a second click while the first one is not done."""
    return page.get_by_role("button", name="Show the result now")


def press_if_there(button: Locator) -> None:
    """Press it, unless its page goes meanwhile."""
    if button.is_visible():
        with contextlib.suppress(TimedOut):
            button.click(timeout=5000)


def arrived(page: Page, address: re.Pattern[str]) -> None:
    """The page is there, even where a second click has broken off the first one's way.

    A second one that came before the first was done gets a page that says so; a shopper without a script presses on.
    """

    def there() -> bool:
        press_if_there(press_on(page))
        return address.search(page.url) is not None

    until(there)
    page.wait_for_load_state()


def buy(page: Page, *, clicks: int = 2) -> str:
    """Double click on Buy; the order that the page shows."""
    page.goto("/products/mug")
    page.locator("form.buy button[data-busy]").click(click_count=clicks, no_wait_after=True)
    arrived(page, ORDER)
    found = ORDER.search(page.url)
    assert found is not None
    return found[1]


def choose(page: Page, channel: str) -> None:
    """Double click on Pay."""
    page.check(f"form.channels [name=channel][value={channel}]", force=True)
    page.locator("form.channels button").click(click_count=2, no_wait_after=True)


def pressed_until(page: Page, wanted: Locator) -> None:
    """Press on as a shopper without a script does, or Pay again where the provider was slow."""
    pay_again = page.locator("form.channels button")

    def shown() -> bool:
        for button in (press_on(page), pay_again):
            if not wanted.is_visible():
                press_if_there(button)
        return wanted.is_visible()

    until(shown)


def shown_as_paid(page: Page, order_id: str) -> bool:
    """Whether the page says so when it is loaded again; the provider may not have answered."""
    page.goto(f"/orders/{order_id}?check=1")
    return page.get_by_text("Paid. Thank you!").is_visible()


def paid_once(shop: RunningShop, api: httpx.Client, order_id: str) -> None:
    order = api.get(f"/api/v1/orders/{order_id}").json()
    payment = api.get(f"/api/v1/payments/{order['payment']}").json()
    assert (order["status"], payment["status"]) == ("paid", "succeeded")
    assert (payment["paid_minor"], payment["refunded_minor"]) == (1990, 0)
    charged = charges(shop)
    numbers = [attempt["out_trade_no"] for attempt in payment["attempts"] if attempt["out_trade_no"] in charged]
    assert [charged[number]["charged_minor"] for number in numbers] == [1990]


def test_wechat_with_double_clicks_everywhere(page: Page, shop: RunningShop, api: httpx.Client) -> None:
    before = order_ids(shop)
    order_id = buy(page)
    choose(page, "wechat")
    expect(page.locator(".qr")).to_be_visible()
    with page.context.expect_page() as opened:
        page.get_by_text("Open the sandbox phone").click()
    phone = opened.value
    phone.get_by_role("button", name="Pay").dblclick()
    expect(phone.get_by_text("Paid.")).to_be_visible()
    expect(page.get_by_text("Paid. Thank you!")).to_be_visible()  # by itself, without a reload
    page.reload()
    expect(page.get_by_text("Paid. Thank you!")).to_be_visible()
    assert order_ids(shop) - before == {order_id}
    paid_once(shop, api, order_id)


def test_no_picture_is_in_the_way_of_a_click_before_the_style_sheet_is_there(
    page: Page, shop: RunningShop
) -> None:
    """The second of two clicks on Buy may meet the next page as early as that."""
    order_id = buy(page, clicks=1)
    page.route("**/*.css", lambda route: route.fulfill(body="", content_type="text/css"))
    for address in ("/", "/products/mug", f"/orders/{order_id}"):
        page.goto(address)
        heights = page.locator("svg:visible").evaluate_all("all => all.map(each => each.clientHeight)")
        assert heights, address
        assert max(heights) <= 150, address


def test_back_and_buy_again_is_the_same_order(page: Page, shop: RunningShop) -> None:
    before = order_ids(shop)
    order_id = buy(page, clicks=1)
    for reload in (False, True):
        page.go_back()
        arrived(page, re.compile("/products/mug$"))
        if reload:
            page.reload()
        page.locator("form.buy button[data-busy]").click()
        arrived(page, ORDER)
        assert order_id in page.url
    assert order_ids(shop) - before == {order_id}
    assert buy(page, clicks=1) != order_id, "opened again, it is another intent"


def test_buttons_work_again_after_the_shopper_stopped_the_page(page: Page) -> None:
    page.clock.install()
    page.goto("/products/mug")
    page.route("**/buy", lambda _route: None)  # never answered
    button = page.locator("form.buy button[data-busy]")
    with page.expect_request("**/buy"):
        button.click(no_wait_after=True)
    page.context.new_cdp_session(page).send("Page.stopLoading")
    page.unroute("**/buy")
    expect(button).to_be_disabled()
    page.clock.fast_forward(30_000)
    expect(button).to_be_enabled(timeout=15_000)
    button.click()
    arrived(page, ORDER)


def test_a_login_in_two_tabs_leads_both_on(visit: Visit) -> None:
    first = visit()
    tabs = [first, first.context.new_page()]
    for tab in tabs:
        tab.goto("/accounts/login/?next=/products/mug")
    for tab in tabs:
        tab.fill("#id_username", "demo")
        tab.fill("#id_password", "demo")
        follow(tab, tab.locator("main button"))
    tabs[1].get_by_text("Reload page").click()
    for tab in tabs:
        expect(tab).to_have_url(re.compile("/products/mug$"))


# the page's own resend comes while the shopper's reload is under way; it says how many forms that has sent
RESEND_IN_A_RELOAD = """{
  const { setTimeout: real } = window;
  let resend = null, sent = 0;
  HTMLFormElement.prototype.submit = () => { sent += 1 };
  window.setTimeout = (done, ms) => ms < 1000 || ms > 6000 ? real(done, ms) : (resend = done);
  addEventListener("beforeunload", () => resend && real(() => { resend(); fetch("/resent/" + sent) }, 0));
}"""


def test_back_and_reload_after_a_second_click_that_met_the_first(page: Page, shop: RunningShop) -> None:
    before = order_ids(shop)
    page.add_init_script(RESEND_IN_A_RELOAD)
    page.goto("/products/mug")
    buy_form = page.locator("form.buy")
    with shop.database() as connection, connection.transaction():
        connection.execute("LOCK TABLE shop_order IN SHARE MODE")  # the first click's order waits
        buy_form.evaluate(
            "form => { fetch(form.action, { method: 'POST', body: new URLSearchParams(new FormData(form)) }) }"
        )
        until(lambda: connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone())
        with shop.redis() as redis:
            for marker in redis.scan_iter("*:key:{*"):  # however long the browser takes, the first click runs
                redis.persist(marker)
        buy_form.locator("button[data-busy]").click()
        expect(press_on(page)).to_be_visible()
        met: dict[str, Route] = {}

        def meet(route: Route) -> None:  # the reload ends once the resend was due
            met[route.request.url] = route
            if len(met) == 2:
                for url, each in met.items():
                    each.fulfill() if "/resent/" in url else each.continue_()

        page.wait_for_load_state()  # before, the page's script could come after all this
        page.route(re.compile("/resent/|/products/mug/buy$"), meet)
        with page.expect_event("load"):
            page.evaluate("setTimeout(() => location.reload(), 0), 0")
        assert set(met) == {f"{shop.url}/products/mug/buy", f"{shop.url}/resent/0"}, "it would cancel the reload"
        page.unroute_all()
        expect(buy_form).to_be_visible()
    for _ in range(2):
        buy_form.locator("button[data-busy]").click()
        arrived(page, ORDER)
        assert [ORDER.search(page.url)[1]] == list(order_ids(shop) - before)  # type: ignore[index]
        page.go_back()
        arrived(page, re.compile("/products/mug$"))


def test_a_link_is_waited_for_without_beforeunload(page: Page) -> None:
    """As in Safari on iOS, which has no such event."""

    def resends(route: Route) -> None:
        form = '<form method="post" action="/products/mug/buy" data-resubmit></form></main>'
        route.fulfill(body=route.fetch().text().replace("</main>", form), content_type="text/html")

    page.route("**/products/mug", resends)
    page.add_init_script(
        """
        addEventListener("beforeunload", (event) => event.stopImmediatePropagation());
        HTMLFormElement.prototype.submit = () => { window.sent = true };
        const { setTimeout: real } = window;
        window.setTimeout = (done, ms) => ms < 1000 || ms > 6000 ? real(done, ms) : (window.resend = done);
        """
    )
    page.goto("/products/mug")
    with page.expect_navigation():
        sent = page.evaluate("document.querySelector('a[href=\"/orders\"]').click(), resend(), window.sent")
    assert not sent, "it would cancel the link's page"


def test_tabs_of_one_order_are_one_charge_and_each_sees_it(
    page: Page, shop: RunningShop, api: httpx.Client
) -> None:
    order_id = buy(page)
    other = page.context.new_page()
    # opened by its address it is not live, or the first tab's code might come before it presses
    other.add_init_script(
        "if (!document.referrer) { delete window.EventSource; window.fetch = () => new Promise(() => 0) }"
    )
    other.goto(f"/orders/{order_id}")
    choose(page, "wechat")
    expect(page.locator(".qr")).to_be_visible()
    choose(other, "wechat")
    expect(other.locator(".qr")).to_be_visible()
    payment = api.get(f"/api/v1/payments/{api.get(f'/api/v1/orders/{order_id}').json()['payment']}").json()
    (attempt,) = payment["attempts"]
    tabs = [page, other, page.context.new_page(), page.context.new_page()]  # two of them are streams
    for tab in tabs[2:]:
        tab.goto(f"/orders/{order_id}")
    control(shop, "pay", {"out_trade_no": attempt["out_trade_no"]})
    for tab in tabs:
        expect(tab.get_by_text("Paid. Thank you!")).to_be_visible()
    paid_once(shop, api, order_id)
