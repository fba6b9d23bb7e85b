"""A running shop and a real Chromium, at phone and desktop size."""

import json
import shutil
from collections.abc import Iterator
from functools import cache
from typing import Any
from uuid import uuid4

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
WAIT_MS = 60_000  # the machine may be busy with other tests
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


@pytest.fixture
def size(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A phone's, or the one that the test names."""
    return SIZES[getattr(request, "param", "phone")]


ON_DESKTOP = pytest.mark.parametrize("size", ["desktop"], indirect=True)


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


def log_in(page: Page, shop: RunningShop, user: str = "demo") -> None:
    """Give the page's visitor a session of the user's own; tests that are about a login fill in its form."""
    key = uuid4().hex
    copy = "INSERT INTO django_session SELECT %s, session_data, expire_date FROM django_session WHERE session_key = %s"
    with shop.database() as connection:
        assert connection.execute(copy, [key, _first_session(shop, user)]).rowcount == 1
    page.context.add_cookies([{"name": "sessionid", "value": key, "url": shop.url}])


@cache
def _first_session(shop: RunningShop, user: str) -> str:
    """Log in by the form, without a browser; return the session's key."""
    with httpx.Client(base_url=shop.url, timeout=60, trust_env=False) as client:
        client.get("/accounts/login/")
        form = {"username": user, "password": user, "csrfmiddlewaretoken": client.cookies["csrftoken"]}
        assert client.post("/accounts/login/", data=form).status_code == 302
        return client.cookies["sessionid"]


@pytest.fixture
def page(browser: Browser, shop: RunningShop, size: dict[str, Any]) -> Iterator[Page]:
    """The demo user's page; what its console reports as an error fails the test."""
    opened = open_page(browser, shop, **size)
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    log_in(opened, shop)
    yield opened
    opened.context.close()
    # a refusal that the page shows (409) is no fault of it, though the browser reports its status
    assert [text for text in complaints if "status of 409" not in text] == []
