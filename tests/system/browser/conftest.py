"""A running shop and a real Chromium, at phone and desktop size."""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from uuid import uuid4

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
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
SMALL: dict[str, dict[str, Any]] = {"small phone": {"viewport": {"width": 320, "height": 568}}}

# on the way from one scheme to the other, a button is neither
COLOURS_HAVE_CHANGED = """() => Promise.allSettled(
    document.getAnimations().filter((each) => each instanceof CSSTransition).map((each) => each.finished)
).then(() => null)"""

ENDPOINT = {"URL": "http://127.0.0.1:9/hook", "SECRETS": "whsec_" + "A" * 32}  # nobody listens there
WAIT_MS = 60_000  # the machine may be busy with other tests
expect.set_options(timeout=WAIT_MS)

Visit = Callable[..., Page]


@pytest.fixture(scope="package")
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


def control(shop: RunningShop, what: str, body: dict[str, Any]) -> None:
    """Post to the provider sandbox's `/_control/{what}`."""
    httpx.post(f"{shop.sandbox_url}/_control/{what}", json=body, trust_env=False).raise_for_status()


def open_page(browser: Browser, shop: RunningShop, **options: Any) -> Page:
    """A page of a fresh visitor; close its context."""
    context = browser.new_context(base_url=shop.url, **options)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    return page


def follow(page: Page, link: Locator) -> None:
    """Click on it, and wait until its page is there; a note in the history is a navigation, but loads none."""
    page.wait_for_load_state()
    with page.expect_event("load"):
        link.click()


def log_in(page: Page, shop: RunningShop, user: str = "demo") -> None:
    """Give the page's visitor a session of the user's own, without the login's form."""
    key = uuid4().hex
    copy = "INSERT INTO django_session SELECT %s, session_data, expire_date FROM django_session WHERE session_key = %s"
    with shop.database() as connection:
        assert connection.execute(copy, [key, _first_session(shop, user)]).rowcount == 1
    page.context.add_cookies([{"name": "sessionid", "value": key, "url": shop.url}])


@cache
def _first_session(shop: RunningShop, user: str) -> str:
    """Log in by the form, without a browser; return the session's key."""
    with httpx.Client(base_url=shop.url, trust_env=False) as client:
        client.get("/accounts/login/")
        form = {"username": user, "password": user, "csrfmiddlewaretoken": client.cookies["csrftoken"]}
        assert client.post("/accounts/login/", data=form).status_code == 302
        return client.cookies["sessionid"]


@pytest.fixture
def visit(browser: Browser, shop: RunningShop) -> Iterator[Visit]:
    """A function: the page of a fresh visitor, logged in as the `user` if one is named."""
    opened: list[Page] = []

    def make(user: str = "", **options: Any) -> Page:
        opened.append(open_page(browser, shop, **options))
        if user:
            log_in(opened[-1], shop, user)
        return opened[-1]

    yield make
    for page in opened:
        page.context.close()


def complaints_of(page: Page) -> list[str]:
    """List errors of its scripts and on its console from now on."""
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


@pytest.fixture
def page(visit: Visit, size: dict[str, Any]) -> Iterator[Page]:
    """The demo user's page; what its console reports as an error fails the test."""
    opened = visit("demo", **size)
    complaints = complaints_of(opened)
    yield opened
    opened.context.close()
    # a refusal that the page shows (409) is no fault of it, though the browser reports its status
    assert [text for text in complaints if "status of 409" not in text] == []


@pytest.fixture(scope="package")
def api(shop: RunningShop) -> Iterator[httpx.Client]:
    """The demo user's."""
    with shop.api() as client:
        yield client


@pytest.fixture
def operator(request: pytest.FixtureRequest, visit: Visit) -> Iterator[Page]:
    """The admin's page on a desktop, or in the named look; an error on its console fails it."""
    size, scheme = getattr(request, "param", ("desktop", "light"))
    page = visit("admin", color_scheme=scheme, **SIZES[size])
    complaints = complaints_of(page)
    yield page
    page.context.close()
    assert complaints == []


def at_each_size(page: Page, sizes: dict[str, dict[str, Any]] = SIZES) -> Iterator[str]:
    """Have the page as wide as each device for a while."""
    before = page.viewport_size
    assert before is not None
    for name, size in sizes.items():
        page.set_viewport_size(size["viewport"])
        yield name
    page.set_viewport_size(before)


def fits(page: Page, sizes: dict[str, dict[str, Any]] = SMALL | SIZES) -> None:
    """Nothing sticks out to the side on a small phone (WCAG 2.2, 1.4.10), phone or desktop."""
    for _ in at_each_size(page, sizes):
        width, room = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert width <= room


def is_accessible(page: Page) -> None:
    """By axe-core's rules, in light on a phone and in dark on a desktop."""
    for size, scheme in zip(at_each_size(page), ("light", "dark"), strict=True):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.evaluate(COLOURS_HAVE_CHANGED)
        results: dict[str, Any] = Axe().run(page).response
        violations = [
            f"{found['id']}: {node['html'][:200]} ({node['failureSummary'][:300]})"
            for found in results["violations"]
            for node in found["nodes"]
        ]
        assert not violations, f"{page.url} on a {size}:\n" + "\n".join(violations)
