"""A shopper who has pressed on is not thrown back, however slowly the next page loads."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.shop.web.test_refund_pages import PHONE
from tests.running import RunningShop, until
from tests.system.browser.conftest import FLAGS, SIZES, Visit, control, log_in, open_page
from tests.system.browser.slow_proxy import SlowProxy, slow_proxy
from tests.system.browser.test_purchase import buy, held_answers

DELAY_SECONDS = 3.0  # longer than the stream takes to look by itself
DEVICES: dict[str, dict[str, Any]] = {
    "wechat": {**SIZES["phone"], "user_agent": PHONE},  # opens the wallet on the phone itself
    "alipay": SIZES["desktop"],
    "stripe": SIZES["desktop"],
}
# says on the console when the page hears that its order is not as it shows it, and keeps what its stream is
SAY_NEWS = """
const { EventSource: Real } = window;
window.EventSource = class extends Real {
  constructor(...given) {
    super(...given);
    window.stream = this;
    this.addEventListener("status", ({ data }) => {
      const { state } = document.querySelector("[data-state]").dataset;
      if (JSON.parse(data).state !== state) console.log("news");
    });
  }
};
"""
NOTE_MEMORY = """
addEventListener("pageshow", (event) => event.persisted && sessionStorage.setItem("from memory", "yes"));
"""


@pytest.fixture
def remembering(browser: Browser, program: str) -> Iterator[Browser]:
    """A Chromium that keeps a page as it was left for "back", which Playwright switches off."""
    off = ["--disable-back-forward-cache"]
    launched = browser.browser_type.launch(executable_path=program, args=FLAGS, ignore_default_args=off)
    yield launched
    launched.close()


@pytest.fixture
def proxy(shop: RunningShop) -> Iterator[SlowProxy]:
    port = urlsplit(shop.sandbox_url).port
    assert port
    with slow_proxy(port, delay_seconds=DELAY_SECONDS) as running:
        yield running


def navigations(page: Page) -> list[str]:
    """The method and path of each that its window begins from now on."""
    found: list[str] = []

    def note(request: Any) -> None:
        if request.is_navigation_request() and request.frame == page.main_frame:
            found.append(f"{request.method} {urlsplit(request.url).path}")

    page.on("request", note)
    return found


def press(page: Page, channel: str) -> None:
    page.check(f"form.channels [name=channel][value={channel}]", force=True)
    page.locator("form.channels button").click(no_wait_after=True)


def stream_opened(page: Page) -> bool:
    """Whether the page has got one of its user's two streams; where not, it is loaded again.

    Pages of earlier tests hold theirs until the server sees that they are gone.
    """
    page.wait_for_function("() => window.stream && stream.readyState !== EventSource.CONNECTING")
    if page.evaluate("() => stream.readyState === EventSource.OPEN"):
        return True
    page.reload()
    return False


def from_memory(page: Page) -> bool:
    """Whether "back" has taken the page as it was left."""
    return bool(page.evaluate("() => sessionStorage.getItem('from memory')"))


@pytest.mark.parametrize("channel", DEVICES)
def test_pay_leads_to_a_slow_provider(visit: Visit, shop: RunningShop, proxy: SlowProxy, channel: str) -> None:
    page = visit("demo", proxy={"server": proxy.url}, **DEVICES[channel])
    order_id = buy(page, clicks=1)
    begun = navigations(page)
    press(page, channel)
    page.wait_for_url(re.compile(re.escape(shop.sandbox_url)))
    expect(page.get_by_role("button", name="Pay")).to_be_visible()
    assert begun[0] == f"POST /orders/{order_id}/pay"
    assert f"GET /orders/{order_id}" not in begun, "the page went back to itself"
    assert proxy.delayed


def test_a_code_that_its_provider_is_slow_to_give(visit: Visit, shop: RunningShop) -> None:
    page = visit("demo", **SIZES["desktop"])
    page.add_init_script(SAY_NEWS)
    order_id = buy(page, clicks=1)
    until(lambda: stream_opened(page))
    begun = navigations(page)
    news = page.expect_console_message(lambda message: message.text == "news")
    with held_answers(shop), news:
        press(page, "wechat")
    expect(page.locator(".qr")).to_be_visible()
    assert begun == [f"POST /orders/{order_id}/pay", f"GET /orders/{order_id}"]


@pytest.mark.parametrize("memory", [True, False])
def test_a_page_that_is_come_back_to_is_live_again(
    browser: Browser, remembering: Browser, shop: RunningShop, proxy: SlowProxy, memory: bool
) -> None:
    proxy.lets_pages_be_kept = memory  # which Chromium does not do by itself with pages of somebody logged in
    chosen = remembering if memory else browser
    page = open_page(chosen, shop, proxy={"server": proxy.url}, **SIZES["desktop"])
    page.add_init_script(NOTE_MEMORY)
    log_in(page, shop)
    buy(page, clicks=1)
    press(page, "alipay")
    page.wait_for_url(re.compile(re.escape(f"{shop.sandbox_url}/pay/")))
    number = page.url.rsplit("/", 1)[1]
    page.evaluate("() => history.back()")
    expect(page.get_by_role("link", name="Continue to Alipay")).to_be_visible()
    page.locator("details.other summary").click()
    expect(page.locator("form.channels button")).to_be_enabled()
    assert from_memory(page) is memory
    control(shop, "pay", {"out_trade_no": number})
    expect(page.get_by_text("Paid. Thank you!")).to_be_visible()
    page.context.close()
