"""`payonce.js` in a real browser: answers are lost or refused for a while; one order."""

from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.policy import HTTP
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Page, Route

from tests import pages
from tests.running import RunningShop
from tests.sandbox import ROOT
from tests.system.browser.conftest import Visit, log_in, open_page

SCRIPT = ROOT / "idempotency" / "static" / "idempotency" / "payonce.js"
ORDERS = "**/api/v1/orders"
DOCS = "docs/how-to/retry-from-the-browser.md"

# posts an order for the note's sake, from a page of the shop; gives what the caller hears
POST = """
async ({ note, options }) => {
  const headers = { "X-CSRFToken": document.cookie.match(/csrftoken=(\\w+)/)[1] };
  const order = { items: [{ sku: "mug", quantity: 1 }], note };
  try {
    const answer = await payonce.post("/api/v1/orders", order, { intent: note, headers, ...options });
    return { status: answer.status, id: answer.data.id, replayed: answer.headers.get("Idempotent-Replayed") };
  } catch (error) {
    return { gaveUp: error instanceof payonce.GaveUp, key: error.key, intent: error.intent };
  }
}
"""
PENDING = "() => payonce.pending().map(({ intent }) => intent)"


@pytest.fixture(scope="module")
def visitor(browser: Browser, shop: RunningShop) -> Iterator[Page]:
    opened = open_page(browser, shop)
    log_in(opened, shop)
    yield opened
    opened.context.close()


@pytest.fixture
def page(visitor: Page) -> Iterator[Page]:
    visitor.goto("/orders")
    visitor.evaluate("sessionStorage.clear()")
    yield visitor
    visitor.unroute_all()


def post(page: Page, note: str, **options: Any) -> Any:
    return page.evaluate(POST, {"note": note, "options": options})


def answered(page: Page, *ways: Callable[[Route], Any]) -> list[tuple[str, str | None]]:
    """Have the next orders answered in these ways; return key and body of each request."""
    sent: list[tuple[str, str | None]] = []

    def answer(route: Route) -> None:
        sent.append((route.request.headers["idempotency-key"], route.request.post_data))
        (ways[len(sent) - 1] if len(sent) <= len(ways) else Route.continue_)(route)

    page.route(ORDERS, answer)
    return sent


def lose(route: Route) -> None:
    """Done, and the browser never hears of it."""
    assert route.fetch().status == 201
    route.abort("connectionreset")


def orders_of(shop: RunningShop, note: str) -> list[str]:
    with shop.database() as connection:
        rows = connection.execute("SELECT id FROM shop_order WHERE note = %s", [note]).fetchall()
    return [row[0].hex for row in rows]


def test_is_small_and_needs_nothing() -> None:
    script = SCRIPT.read_text()
    assert len(script.encode()) < 6000
    assert not [word for word in ("import ", "require(", "http://", "https://") if word in script]


def test_the_docs_example_makes_one_order_of_a_double_click(page: Page, shop: RunningShop) -> None:
    (tag,), (example,) = pages.blocks(DOCS, "html"), pages.blocks(DOCS, "js")
    assert page.request.get(tag.split('"')[1]).ok
    note = uuid4().hex
    page.evaluate(
        f"""
        (note) => {{
          const button = document.createElement("button"), order = {{ items: [{{ sku: "mug", quantity: 1 }}], note }};
          const csrf = document.cookie.match(/csrftoken=(\\w+)/)[1];
          window.shown = [];
          const show = (...what) => window.shown.push(what);
          {example}
          button.click();
          button.disabled = false;
          button.click();
        }}
        """,
        note,
    )
    page.wait_for_function("() => window.shown.length === 2")
    statuses, orders = zip(
        *page.evaluate("() => window.shown.map(([status, { id }]) => [status, id])"), strict=True
    )
    assert statuses == (201, 201)
    assert set(orders) == set(orders_of(shop, note))


def test_the_answer_is_lost_after_the_server_did_it(page: Page, shop: RunningShop) -> None:
    note, sent = uuid4().hex, answered(page, lose, lose)
    answer = post(page, note)
    assert (answer["status"], answer["replayed"]) == (201, "true")
    assert orders_of(shop, note) == [answer["id"]]
    assert (len(sent), len(set(sent))) == (3, 1)
    assert page.evaluate(PENDING) == []


def test_a_reload_in_the_middle_goes_on_with_the_same_key_and_body(page: Page, shop: RunningShop) -> None:
    def reload(route: Route) -> None:
        route.fetch()  # done; the page is gone before it hears
        page.evaluate("() => { location.reload() }")

    note, sent = uuid4().hex, answered(page, reload)
    with page.expect_navigation():
        page.evaluate(f"(given) => {{ ({POST})(given) }}", {"note": note, "options": {}})
    page.wait_for_function("() => window.payonce")
    assert page.evaluate(PENDING) == [note]
    answer = page.evaluate(
        """
        async () => {
          const headers = { "X-CSRFToken": document.cookie.match(/csrftoken=(\\w+)/)[1] };
          const [{ intent, url, body }] = payonce.pending();
          const { status, data } = await payonce.post(url, body, { intent, headers });
          return { status, id: data.id };
        }
        """
    )
    assert answer["status"] == 201
    assert orders_of(shop, note) == [answer["id"]]
    assert (len(sent), len(set(sent))) == (2, 1)
    assert page.evaluate(PENDING) == []


def test_away_for_a_while_is_waited_for_as_long_as_it_says(page: Page, shop: RunningShop) -> None:
    def refuse(status: int, **headers: str) -> Callable[[Route], None]:
        given = {"content_type": "application/problem+json", "body": '{"code": "idempotency_in_progress"}'}
        return lambda route: route.fulfill(status=status, headers=headers, **given)

    after = {"Retry-After": "1"}
    note, sent = uuid4().hex, answered(page, refuse(503, **after), refuse(429, **after), refuse(409))
    # the waits that it asks the browser for, without their random part
    page.evaluate(
        "() => { Math.random = () => 0; window.waits = []; const { setTimeout: real } = window;"
        " window.setTimeout = (done, ms) => { waits.push(ms); return real(done, 0); } }"
    )
    answer = post(page, note)
    assert answer["status"] == 201
    assert orders_of(shop, note) == [answer["id"]]
    assert (len(sent), len(set(sent))) == (4, 1)
    assert page.evaluate("() => waits") == [1000, 1000, 0]


def test_giving_up_carries_the_key_and_the_next_call_has_it(page: Page, shop: RunningShop) -> None:
    note, sent = uuid4().hex, answered(page, lose, lose)
    gave_up = post(page, note, attempts=2)
    assert gave_up == {"gaveUp": True, "key": sent[0][0], "intent": note}
    other_body = page.evaluate(
        "async (intent) => { try { await payonce.post('/api/v1/orders', {}, { intent }) } catch (error) { return error.key } }",
        note,
    )
    assert other_body == sent[0][0]
    assert len(sent) == 2, "nothing was sent for it"
    answer = post(page, note)
    assert (answer["status"], answer["replayed"]) == (201, "true")
    assert orders_of(shop, note) == [answer["id"]]


def test_two_calls_at_once_are_one_and_the_button_says_so(page: Page, shop: RunningShop) -> None:
    note = uuid4().hex
    said = page.evaluate(
        f"""
        async (given) => {{
          const button = document.createElement("button");
          button.textContent = "Buy";
          button.dataset.busy = "Buying";
          const post = {POST};
          const both = [post(given), post(given)];
          const options = {{ ...given.options, button }};
          both.push(post({{ note: given.note + "b", options }}));
          const during = [button.disabled, button.textContent];
          const answers = await Promise.all(both);
          return {{ answers, during, after: [button.disabled, button.textContent] }};
        }}
        """,
        {"note": note, "options": {}},
    )
    first, second, _ = said["answers"]
    assert first == second
    assert orders_of(shop, note) == [first["id"]]
    assert (said["during"], said["after"]) == ([True, "Buying"], [False, "Buy"])


# a call -> what its caller hears, and how many calls are pending afterwards
HEARD = {
    "a final answer forgets the key": (
        "payonce.post('/api/v1/orders', {}, { headers: { 'X-CSRFToken': 'wrong' } }).then(({ status }) => status)",
        (403, 0),
    ),
    "the same body for another address meanwhile is refused": (
        """Promise.allSettled(["/api/v1/orders", "/nowhere"].map((url) => payonce.post(url, {}, { intent: "same" }))).then(
             ([first, second]) => [first.value?.status, second.reason instanceof payonce.GaveUp])""",
        ([403, True], 0),
    ),
    "the first call decides how its body is sent": (
        """payonce.post("/away", { a: 1 }, { attempts: 1 }).catch(() => payonce.post("/away", '{"a":1}', { attempts: 1 }))
             .catch(() => payonce.pending()[0].body)""",
        ({"a": 1}, 1),
    ),
    "a stream is refused": (
        "payonce.post('/nowhere', new Blob(['once']).stream()).catch(({ name, message }) => `${name}: ${message}`)",
        ("TypeError: payonce: a stream cannot be sent again; post a Blob", 0),
    ),
}


@pytest.mark.parametrize("what", HEARD)
def test_what_a_caller_hears(page: Page, what: str) -> None:
    page.route("**/away", lambda route: route.abort("connectionreset"))
    call, (said, pending) = HEARD[what]
    assert (page.evaluate(f"() => {call}"), len(page.evaluate(PENDING))) == (said, pending)


BODIES = {
    "form": "(() => { const form = new FormData(); form.append('note', '茶'); form.append('slip',"
    " new Blob([new Uint8Array([0, 255, 13, 10])], { type: 'image/png' }), 'payonce.png'); return form })()",
    "pairs": "new URLSearchParams({ note: 'a b', again: '茶' })",
    "text": "'茶'",
    "blob": "new Blob([new Uint8Array([0, 255, 128])], { type: 'image/PNG' })",
    "bytes": "new Uint8Array([7, 0, 255, 7]).subarray(1, 3)",
    "buffer": "new Uint8Array([0, 255]).buffer",
}
SENT = {
    "pairs": (b"note=a+b&again=%E8%8C%B6", "application/x-www-form-urlencoded;charset=utf-8"),
    "text": ("茶".encode(), "text/plain;charset=utf-8"),
    "blob": (b"\0\xff\x80", "image/png"),
    "bytes": (b"\0\xff", None),
    "buffer": (b"\0\xff", None),
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_as_fetch_takes_it_is_sent_again_byte_for_byte(page: Page, kind: str) -> None:
    sent: list[tuple[str | None, ...]] = []

    def answer(route: Route) -> None:
        headers = route.request.headers
        body = route.request.post_data_buffer
        sent.append((headers["idempotency-key"], headers.get("content-type"), body))  # type: ignore[arg-type]
        if len(sent) < 4:
            route.abort("connectionreset")
        else:
            route.fulfill(status=201)

    page.route("**/upload", answer)
    call = f"payonce.post('/upload', {BODIES[kind]}, {{ intent: 'it', attempts: 2 }}).catch(({{ message }}) => message)"
    assert page.evaluate(call) == "no answer"
    again = page.evaluate(
        f"async () => [await {call.replace('attempts: 2', 'attempts: 1')}, payonce.pending().length]"
    )
    assert again == ["no answer", 1], "the same body, made a second time"
    page.reload()
    restored = (
        "() => { const [{ intent, url, body }] = payonce.pending(); return payonce.post(url, body, { intent }) }"
    )
    assert page.evaluate(f"async () => (await ({restored})()).status") == 201
    assert len(sent) == 4
    (_, content_type, body), *others = set(sent)
    assert others == []
    if kind == "form":
        assert content_type is not None
        head = f"Content-Type: {content_type}\r\n\r\n".encode()
        note, slip = message_from_bytes(head + body, policy=HTTP).iter_parts()
        assert note.get_payload(decode=True) == "茶".encode()
        assert (slip.get_filename(), slip.get_payload(decode=True)) == ("payonce.png", b"\0\xff\r\n")
    else:
        assert (body, content_type and content_type.lower()) == SENT[kind]


@pytest.mark.parametrize("way", ["blocked", "full"])
def test_without_storage_it_refuses_and_sends_nothing(page: Page, way: str) -> None:
    sent = answered(page)
    page.evaluate(
        """(way) => {
          if (way === "full") sessionStorage.setItem("other", "x".repeat(5 * 1024 * 1024 - 5));
          else Object.defineProperty(window, "sessionStorage", { get() { throw new DOMException("", "SecurityError") } });
        }""",
        way,
    )
    assert page.evaluate(PENDING) == []
    refused = page.evaluate(
        "payonce.post('/api/v1/orders', {}).catch((error) => [error instanceof payonce.GaveUp, error.message])"
    )
    assert refused == [False, "payonce: sessionStorage is blocked or full; nothing was sent"]
    page.evaluate("payonce.forget('/api/v1/orders')")
    assert sent == []


def test_a_page_led_to_instead_is_no_outcome(visit: Visit, shop: RunningShop) -> None:
    visitor = visit()
    visitor.goto("/products/mug")
    visitor.add_script_tag(url="/static/idempotency/payonce.js")
    buy = """
    async () => {
      const headers = { "X-CSRFToken": document.querySelector("[name=csrfmiddlewaretoken]").value };
      const body = new FormData(document.querySelector("form.buy"));
      try {
        return await payonce.post("/products/mug/buy", body, { headers });
      } catch (error) {
        return [error instanceof payonce.GaveUp, error.message, error.key];
      }
    }
    """
    gave_up, message, key = visitor.evaluate(buy)
    assert gave_up
    assert message.startswith(f"redirected to {shop.url}/accounts/login/")
    assert visitor.evaluate(buy)[2] == key
