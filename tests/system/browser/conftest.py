"""A running shop and a real Chromium, at phone and desktop size."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.conftest import a_folder_of_its_own
from tests.running import RunningShop

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZES: dict[str, dict[str, Any]] = {
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
    "desktop": {"viewport": {"width": 1280, "height": 800}},
}

ENDPOINT = {"URL": "http://127.0.0.1:9/hook", "SECRETS": "whsec_" + "A" * 32}  # nobody listens there
WAIT_MS = 15_000  # the machine may be busy with other tests
expect.set_options(timeout=WAIT_MS)


# of a worker, which leaves this folder and comes back as files are shared out: a start takes ten seconds
@pytest.fixture(scope="session")
def shop() -> Iterator[RunningShop]:
    with a_folder_of_its_own() as folder:
        running = RunningShop(folder, more={"WEBHOOKS": json.dumps({"books": ENDPOINT})})
        yield running
        assert running.stop() == 0


@pytest.fixture(scope="package")
def program() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on this machine; get it with: apt-get install chromium")
    return found


@pytest.fixture(scope="package")
def browser(program: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(params=sorted(SIZES))
def size(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SIZES[request.param]


def control(shop: RunningShop, what: str, body: dict[str, Any]) -> None:
    """Tell the provider sandbox's `/_control/{what}`."""
    httpx.post(f"{shop.sandbox_url}/_control/{what}", json=body, trust_env=False).raise_for_status()


def open_page(browser: Browser, shop: RunningShop, **options: Any) -> Page:
    """A page of a fresh visitor; an error on its console fails the test at `close_page`."""
    context = browser.new_context(base_url=shop.url, **options)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    return page


def follow(page: Page, link: Locator) -> None:
    """Click on it, and wait until its page is there."""
    with page.expect_navigation():
        link.click()


def log_in(page: Page, user: str = "demo") -> None:
    page.goto("/accounts/login/?next=/")
    page.fill("[name=username]", user)
    page.fill("[name=password]", user)
    follow(page, page.locator("main button[type=submit]"))
    expect(page.locator("form[action$='/logout/']")).to_be_attached()


@pytest.fixture
def page(browser: Browser, shop: RunningShop, size: dict[str, Any]) -> Iterator[Page]:
    """The demo user's page; what its console reports as an error fails the test."""
    opened = open_page(browser, shop, **size)
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    log_in(opened)
    yield opened
    opened.context.close()
    # a refusal that the page shows (409) is no fault of it, though the browser reports its status
    assert [text for text in complaints if "status of 409" not in text] == []
