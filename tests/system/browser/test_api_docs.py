"""The documentation of the API in a real browser; its quickstart makes a paid order."""

import html
import re
import shutil
import subprocess
import sys

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.languages import latin_in
from tests.running import RunningShop
from tests.system.browser.conftest import SIZES, Visit, complaints_of, fits, follow, is_accessible

# a word with a capital or several words; the rest are paths, types, names of fields and headers
ENGLISH = re.compile(r"[A-Z][a-z]+[:.]?|[A-Za-z]+(?: [A-Za-z]+)+[:.]?")
RUN = {"curl": ["bash", "-e"], "Python": [sys.executable, "-"], "JavaScript": ["node", "--input-type=module", "-"]}


def blocks(shop: RunningShop) -> dict[str, str]:
    page = httpx.get(f"{shop.url}/api/docs/", trust_env=False).text
    found = re.findall(r'<pre[^>]*data-quickstart="(\w+)">(.*?)</pre>', page, re.DOTALL)
    return {name: html.unescape(code) for name, code in found}


@pytest.mark.parametrize("name", sorted(RUN))
def test_a_block_of_the_quickstart_makes_a_paid_order(shop: RunningShop, api: httpx.Client, name: str) -> None:
    program = RUN[name][0]
    if shutil.which(program) is None:
        pytest.skip(f"no {program} on this machine; get it with: apt-get install nodejs")
    found = blocks(shop)
    assert set(found) == set(RUN)
    done = subprocess.run(RUN[name], input=found[name], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    (order_id,) = re.findall(r"^paid: ([0-9a-f]{32})$", done.stdout, re.MULTILINE)
    assert api.get(f"/api/v1/orders/{order_id}").json()["status"] == "paid"


def test_calls_and_problem_codes_are_read_on_any_device(visit: Visit) -> None:
    page = visit(color_scheme="dark", **SIZES["phone"])
    complaints = complaints_of(page)
    page.goto("/api/docs/")
    expect(page).to_have_title("PayOnce API")
    assert page.locator("pre[data-quickstart]").first.is_visible()
    for method in ("get", "post"):
        page.locator(f".opblock-summary-{method} .opblock-summary-control").first.click()
        expect(page.locator(f".opblock-{method} .responses-table").first).to_be_visible()
    fits(page)
    expect(page.locator("html")).to_have_class(re.compile("dark-mode"))
    follow(page, page.get_by_role("link", name="all codes, and what to do"))
    expect(page.locator("#order_paid")).to_contain_text("The order is paid.")
    fits(page)
    is_accessible(page)
    assert complaints == []


def test_execute_sends_the_demo_token_and_a_fresh_key_each_time(visit: Visit) -> None:
    page = visit(color_scheme="light", **SIZES["desktop"])
    page.goto("/api/docs/")
    expect(page.locator("html")).to_have_class(re.compile("^$"))
    expect(page.locator(".opblock-tag").first).to_have_attribute("data-tag", "orders")
    place = page.locator("#operations-orders-orders_create")
    place.locator(".opblock-summary-control").click()
    place.get_by_role("button", name="Try it out").click()
    sent = []
    for _ in range(2):
        with page.expect_request(lambda request: request.method == "POST") as asked:
            place.get_by_role("button", name="Execute").click()
        sent.append(asked.value)
        answer = asked.value.response()
        assert answer is not None
        assert answer.status == 201, "of the demo user"
    keys = [request.headers["idempotency-key"] for request in sent]
    assert keys[0] != keys[1]

    place.locator("tr[data-param-name='Idempotency-Key'] input").fill("mine-7f0b4f579f0a6f1a7f6e3b11")
    for replayed in (None, "true"):
        with page.expect_response(lambda response: response.request.method == "POST") as answered:
            place.get_by_role("button", name="Execute").click()
        assert answered.value.headers.get("idempotent-replayed") == replayed


def test_a_chinese_reader_tries_a_call_out_in_chinese(visit: Visit) -> None:
    page = visit(locale="zh-CN", **SIZES["desktop"])
    page.goto("/api/docs/")
    place = page.locator("#operations-orders-orders_create")
    place.locator(".opblock-summary-control").click()
    place.get_by_role("tab", name="结构").first.click()
    place.get_by_role("button", name="全部展开").first.click()
    expect(place.get_by_text("items", exact=True).first).to_be_visible()  # a name of the API
    place.get_by_role("button", name="试一试").click()
    place.get_by_role("button", name="执行").click()
    expect(place.locator(".live-responses-table")).to_contain_text("201")
    assert english_in(page) == set()
    page.get_by_role("button", name="授权").first.click()
    expect(page.get_by_role("button", name="关闭").first).to_be_visible()
    assert english_in(page) == set()


def english_in(page: Page) -> set[str]:
    """Collect what Swagger's part of the page says in English."""
    schemas = page.request.get("/api/schema/?format=json").json()["components"]["schemas"]
    shown = page.locator("#swagger-ui").evaluate("part => part.outerHTML")
    return set(filter(ENGLISH.fullmatch, latin_in(shown, {*schemas, "Token", "Curl"})))
