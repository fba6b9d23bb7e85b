"""The checkout pages without a script: everything must still count once."""

import re
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from django.utils.translation import override

from idempotency.models import LedgerEntry
from idempotency.redis import fastpath
from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.models import Attempt
from shop.models import Order, Product
from shop.orders import lifecycle
from shop.orders import placing as orders
from shop.templatetags.shop import clock, money
from tests.integration.shop.conftest import placed
from tests.integration.shop.settling import number_of, settle
from tests.payments_settings import changed
from tests.threads import at_once

# what a strict Content-Security-Policy forbids
INLINE = re.compile(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|https?://(?!www\.w3\.org)")


def form_of(response: Any, action: str) -> dict[str, str]:
    """The hidden and preset fields of the page's form that posts to `action`."""
    [form] = re.findall(rf'<form[^>]*action="{re.escape(action)}".*?</form>', response.text, re.S)
    inputs = [dict(re.findall(r'(\w+)="([^"]*)"', tag)) for tag in re.findall(r"<input[^>]*>", form)]
    return {field["name"]: field["value"] for field in inputs if field.get("type") != "radio"}


def text_of(response: Any) -> str:
    """What a shopper reads."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.text))


def csrf_of(page: Any) -> str:
    return str(re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)[0])


def log_in(
    client: Client, *, name: str = "demo", password: str = "demo", address: str = "/accounts/login/", **sent: Any
) -> Any:
    """Send the login's form, which leads to the basket."""
    csrf = csrf_of(client.get(address, **sent))
    body = {"csrfmiddlewaretoken": csrf, "username": name, "password": password, "next": "/basket"}
    return client.post(address, body, **sent)


def buy(shopper: Client, sku: str = "mug", **changed: str) -> Any:
    """Press Buy on the product's page."""
    path = f"/products/{sku}/buy"
    return shopper.post(path, form_of(shopper.get(f"/products/{sku}"), path) | changed)


def pay(shopper: Client, order: Order, channel: str, fields: dict[str, str] | None = None) -> Any:
    action = f"/orders/{order.id.hex}/pay"
    fields = fields or form_of(shopper.get(f"/orders/{order.id.hex}"), action)
    return shopper.post(action, {**fields, "channel": channel})


class Visit:
    """A shopper at an order, and the providers that the test scripts."""

    def __init__(self, shopper: Client, order: Order, channels: Any) -> None:
        self.shopper, self.order, self.channels = shopper, order, channels
        self.wechat, self.path = channels["wechat"], f"/orders/{order.id.hex}"

    def page(self) -> str:
        """Return the text of the order's page."""
        return text_of(self.get())

    def get(self, more: str = "", *given: Any, **how: Any) -> Any:
        """Get the order's page, or an address below it."""
        return self.shopper.get(f"{self.path}{more}", *given, **how)

    def form(self, action: str, *, of: str = "") -> dict[str, str]:
        """Return the fields of a form of the page, or of a page below."""
        return form_of(self.get(of), f"{self.path}{action}")

    def status(self) -> Any:
        return self.shopper.get(f"{self.path}/status").json()

    def pay(self, channel: str = "wechat", fields: dict[str, str] | None = None) -> Any:
        return pay(self.shopper, self.order, channel, fields)

    def fact(self, channel: str = "wechat", **changed: Any) -> Any:
        """Pay at the provider; return what its notification says."""
        return replace(self.channels[channel].pay(number_of(self.order.id.hex, channel)), **changed)

    def asked(self, amount: str = "1") -> dict[str, str]:
        """Return the fields of the page that asks whether to refund this."""
        action = f"{self.path}/refund"
        return form_of(self.shopper.get(action, {"amount": amount, "reason": "too small"}), action)

    def ask(self, amount: str, fields: dict[str, str] | None = None) -> Any:
        sent = {**(fields or self.asked()), "amount": amount, "reason": "too small"}
        return self.shopper.post(f"{self.path}/refund", sent)


class TestCatalogue:
    def test_a_guest_sees_products_and_is_led_to_the_login(
        self, client: Client, mug: Product, poster: Product, sneaker: Product
    ) -> None:
        page = client.get("/").text
        assert "¥19.90" in page
        assert "Only 10 left" in page
        assert "Flash sale only" in page

        product = client.get("/products/mug")
        sent = client.post("/products/mug/buy", form_of(product, "/basket/mug/add") | {"quantity": "3"})
        assert sent["Location"] == "/accounts/login/?next=/products/mug%3Fquantity%3D3"
        assert 'value="3"' in client.get("/products/mug?quantity=3").text
        assert 'value="1"' in client.get("/products/mug?quantity=x").text
        Product.objects.filter(sku="poster").update(stock=0)
        for sku in ("poster", "sneaker"):  # sold out, and sold in flash sales alone
            assert 'class="buy"' not in client.get(f"/products/{sku}").text

    def test_a_product_names_the_channels_that_take_its_currency(
        self, client: Client, mug: Product, channels: Any
    ) -> None:
        assert "<li>WeChat Pay · Alipay</li>" in client.get("/products/mug").text
        channels["wechat"].currencies = frozenset({"USD"})
        page = client.get("/products/mug").text
        assert ("<li>Alipay</li>" in page, "WeChat Pay" in page) == (True, False)

    def test_a_member_likes_it_once_however_often_they_press(
        self, client: Client, shopper: Client, other: User, mug: Product
    ) -> None:
        assert client.post("/products/mug/like", {"liked": "1"})["Location"].endswith("?next=/products/mug")
        fields = form_of(shopper.get("/products/mug"), "/products/mug/like")
        for liked, shown in (("1", "1 like"), ("", "0 likes")):
            for _ in range(2):
                sent = shopper.post("/products/mug/like", {**fields, "liked": liked})
                assert sent["Location"] == "/products/mug"
            page = shopper.get("/products/mug").text
            assert (f"<span>{shown}</span>" in page, f'aria-pressed="{"true" if liked else "false"}"' in page) == (
                True,
                True,
            )
        assert shopper.post("/products/none/like", {**fields, "liked": "1"}).status_code == 404

    def test_an_empty_shop_and_an_empty_history_say_so(self, shopper: Client) -> None:
        assert b"Nothing for sale" in shopper.get("/").content
        assert b"You have not ordered anything yet" in shopper.get("/orders").content

    def test_pages_hold_nothing_inline(self, shopper: Client, order: Order, channels: Any) -> None:
        """A strict Content-Security-Policy must be possible."""
        pay(shopper, order, "wechat")
        for path in ("/", "/products/mug", "/basket", "/coupons", f"/orders/{order.id.hex}", "/orders"):
            assert not INLINE.search(shopper.get(path).text), path
        assert not INLINE.search(Client().get("/accounts/login/").text)


@pytest.mark.usefixtures("mug")
class TestBuying:
    def test_a_bad_quantity_is_said_at_the_field_and_the_form_stays_usable(self, shopper: Client) -> None:
        response = shopper.get("/products/mug")
        for quantity in ("0", "100", "", "x"):
            fields = form_of(response, "/products/mug/buy")
            response = shopper.post("/products/mug/buy", {**fields, "quantity": quantity})
            assert (response.status_code, b'id="quantity-error"' in response.content) == (400, True)
        again = {**form_of(response, "/products/mug/buy"), "quantity": "1"}
        assert shopper.post("/products/mug/buy", again).status_code == 302

    def test_two_tabs_make_one_order(self, shopper: Client, poster: Product) -> None:
        first, second, other = (
            form_of(shopper.get(f"/products/{sku}"), f"/products/{sku}/buy") for sku in ("mug", "mug", "poster")
        )
        bought = shopper.post("/products/mug/buy", first)
        again = shopper.post("/products/mug/buy", second)
        assert (again["Location"], again["Idempotent-Replayed"]) == (bought["Location"], "true")
        changed = shopper.post("/products/mug/buy", {**second, "quantity": "2"})
        assert (changed["Location"], Order.objects.count()) == ("/products/mug", 1)
        assert b"What you ordered is under Your orders" in shopper.get("/products/mug").content
        assert shopper.post("/products/poster/buy", other).status_code == 302  # another product's page is its own
        assert buy(shopper).status_code == 302
        assert Order.objects.count() == 3  # a page that is opened after an order is for another one

    def test_out_of_stock_is_a_sentence_above_a_form_that_works(self, shopper: Client, poster: Product) -> None:
        fields = form_of(shopper.get("/products/poster"), "/products/poster/buy")
        response = shopper.post("/products/poster/buy", {**fields, "quantity": "11"})
        assert response.status_code == 409
        assert b"Not enough in stock" in response.content
        assert form_of(response, "/products/poster/buy")["quantity"] == "11"
        Product.objects.filter(sku="poster").update(stock=50)
        assert b"Only 50 left" in buy(shopper, "poster", quantity="51").content
        Product.objects.filter(sku="poster").update(stock=10)
        assert not Order.objects.exists()

        # with the old form, after "back": the same again is the same refusal
        Product.objects.filter(sku="poster").update(stock=11)
        replay = shopper.post("/products/poster/buy", {**fields, "quantity": "11"})
        assert (replay.status_code, replay["Idempotent-Replayed"]) == (409, "true")
        assert shopper.post("/products/poster/buy", form_of(replay, "/products/poster/buy")).status_code == 302
        assert Order.objects.get().total_minor == 11 * 4500

    def test_a_result_that_is_not_kept_any_more_is_in_the_orders(self, shopper: Client) -> None:
        fields = form_of(shopper.get("/products/mug"), "/products/mug/buy")
        shopper.post("/products/mug/buy", fields)
        LedgerEntry.objects.update(response_body=None)
        fastpath.attempt(lambda client: client.flushdb())
        gone = shopper.post("/products/mug/buy", fields)
        assert (gone.status_code, b'class="button" href="/orders"' in gone.content) == (410, True)

    def test_without_a_token_of_the_form_and_of_csrf_nothing_happens(self, shopper: Client) -> None:
        fields = form_of(shopper.get("/products/mug"), "/products/mug/buy")
        without, unsafe = ({**fields} for _ in range(2))
        del without["idempotency_token"], unsafe["csrfmiddlewaretoken"]
        assert shopper.post("/products/mug/buy", without).status_code == 400
        assert shopper.post("/products/mug/buy", {**fields, "idempotency_token": "made-up"}).status_code == 302
        assert b"has been refreshed" in shopper.get("/products/mug").content
        response = shopper.post("/products/mug/buy", unsafe)
        assert (response.status_code, b"This page has expired" in response.content) == (403, True)
        assert b'class="button" href="/products/mug/buy"' in response.content, "which leads to the product"
        assert not Order.objects.exists()

    def test_a_duplicate_of_what_is_running_gets_a_page_that_sends_the_form_again(
        self, shopper: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fields = form_of(shopper.get("/products/mug"), "/products/mug/buy")
        create, early = orders.create_order, []

        def create_while_a_duplicate_arrives(**given: Any) -> Order:
            monkeypatch.undo()
            tab = Client(enforce_csrf_checks=True)
            tab.cookies = shopper.cookies
            early.extend(at_once(lambda: tab.post("/products/mug/buy", fields)))
            return create(**given)

        monkeypatch.setattr(orders, "create_order", create_while_a_duplicate_arrives)
        first = shopper.post("/products/mug/buy", fields)
        assert (early[0].status_code, early[0]["Retry-After"]) == (409, "1")
        assert b"already working on it" in early[0].content
        assert form_of(early[0], "/products/mug/buy") == fields
        assert shopper.post("/products/mug/buy", fields)["Location"] == first["Location"]
        assert Order.objects.count() == 1


class TestPaying:
    def test_wechat_shows_a_qr_code(self, visit: Visit, settings: Any) -> None:
        settings.SANDBOX_URL = "http://127.0.0.1:8001"
        preset = re.compile(r'value="(\w+)" required checked')
        assert preset.findall(visit.get().text) == ["wechat"]
        response = visit.pay()
        assert (response.status_code, response["Location"]) == (302, visit.path)

        shown = visit.get()
        page = shown.text
        # a picture, because a long press saves no inline SVG
        assert '<img class="qr" src="data:image/png;base64,' in page
        assert 'alt="QR code to pay this order in WeChat"' in page
        assert "img-src 'self' data:" in shown["Content-Security-Policy"]
        assert 'href="http://127.0.0.1:8001/wechat/scan?pr=p4lpSuKzz"' in page
        assert '<noscript><meta http-equiv="refresh"' in page
        assert preset.findall(page) == ["alipay"], "another way is the first other one"
        settings.SANDBOX_URL = ""
        assert b"sandbox" not in visit.get().content

    def test_a_channel_that_is_none_and_a_shop_without_any(self, visit: Visit, settings: Any) -> None:
        response = visit.pay("cash")
        assert (response.status_code, b"Choose how you want to pay." in response.content) == (400, True)
        settings.PAYMENTS = changed(PROVIDERS={})
        assert b"This shop has no payment method" in visit.get().content

    def test_a_silent_provider_is_shown_as_checking(self, visit: Visit) -> None:
        visit.wechat.fails(OutcomeUnknown("timed out"), "create", "query")
        response = visit.pay()

        assert response.status_code == 302
        page = visit.shopper.get(response["Location"]).content
        assert b"Confirming your payment" in page
        assert b"We are asking the payment service. Nothing needs to be paid again now" in page
        assert b'class="button button-quiet" type="submit">Pay' in page, "a retry is offered, not suggested"
        assert visit.get("?check=1").status_code == 302

        visit.wechat.works()
        Attempt.objects.update(asked_at=None)  # time passes
        visit.pay()
        assert b"Scan with WeChat" in visit.get().content
        assert len(visit.wechat.trades) == 1

    def test_a_provider_that_refuses_or_is_away_is_a_sentence_and_the_same_form_works_later(
        self, visit: Visit
    ) -> None:
        path, wechat = visit.path, visit.wechat
        fields = visit.form("/pay")
        wechat.fails(ProviderRejected("NOAUTH", "internal words"), "create")
        refused = visit.pay("wechat", fields)
        assert (refused.status_code, b"You were not charged" in refused.content) == (502, True)
        assert b"internal words" not in refused.content
        assert f'href="{path}"' in refused.text
        wechat.fails(ProviderUnavailable("connection refused"), "create")
        away = visit.pay("wechat", fields)
        assert (away.status_code, away["Retry-After"], b"responding" in away.content) == (503, "2", True)

        wechat.works()
        assert visit.pay("wechat", fields)["Location"] == path
        assert len(wechat.trades) == 1

    def test_coming_back_makes_the_server_ask_the_provider(self, visit: Visit, channels: Any) -> None:
        visit.pay("alipay")
        number = number_of(visit.order.id.hex, "alipay")
        forged = visit.get(f"?out_trade_no={number}&trade_no=1&total_amount=19.90")
        assert (forged.status_code, forged["Location"]) == (302, visit.path)
        assert b"Continue to Alipay" in visit.get().content, "words in an address pay nothing"

        channels["alipay"].pay(number)
        visit.get(f"?out_trade_no={number}")
        assert b"Continue to Alipay" in visit.get().content, "asked a moment ago: it shows what is known"
        Attempt.objects.update(asked_at=None)  # time passes
        visit.get(f"?out_trade_no={number}")
        page = visit.get().text
        assert "Paid. Thank you!" in page
        assert " data-final" in page
        asked = len(channels["alipay"].calls)
        visit.get(f"?out_trade_no={number}")
        assert len(channels["alipay"].calls) == asked, "a paid order needs no more asking"

    def test_who_asks_hears_that_nothing_has_come_in_yet(self, visit: Visit) -> None:
        none_yet, no_answer, wechat = (
            b"No payment has arrived yet.",
            b"responding. We keep checking.",
            visit.wechat,
        )
        visit.pay()
        assert none_yet in visit.get("?check=1", follow=True).content
        assert none_yet not in visit.get().content, "said once"
        wechat.fails(ProviderUnavailable("connection refused"), "query")
        again = visit.get("/back", follow=True).content
        assert (none_yet in again, no_answer in again) == (False, False), "nobody was asked"
        Attempt.objects.update(asked_at=None)  # time passes
        assert no_answer in visit.get("/back", follow=True).content
        wechat.works()
        Attempt.objects.update(asked_at=None)
        visit.fact()
        paid = visit.get("?check=1", follow=True).content
        assert (b"Paid. Thank you!" in paid, none_yet in paid) == (True, False)

    def test_paying_or_cancelling_a_paid_order_shows_the_result_and_a_closed_one_a_sentence(
        self, visit: Visit, demo: User
    ) -> None:
        fields, cancel = visit.form("/pay"), visit.form("/cancel", of="/cancel")
        visit.pay()
        settle(visit.fact())
        assert visit.pay("alipay", fields)["Location"] == visit.path
        assert visit.get("/cancel")["Location"] == visit.path, "there is nothing to ask any more"
        assert visit.shopper.post(f"{visit.path}/cancel", cancel)["Location"] == visit.path
        assert b"Paid. Thank you!" in visit.get().content

        closed = placed(demo, mug=1)
        late = form_of(visit.shopper.get(f"/orders/{closed.id.hex}"), f"/orders/{closed.id.hex}/pay")
        lifecycle.cancel(order_id=closed.id, user_id=demo.pk)
        refused = pay(visit.shopper, closed, "wechat", late)
        assert (refused.status_code, b"This order is closed" in refused.content) == (409, True)

    def test_a_guest_is_sent_to_the_login_and_back_to_the_order(self, client: Client, order: Order) -> None:
        path = f"/orders/{order.id.hex}"
        for response in (client.post(f"{path}/pay"), client.post(f"{path}/cancel"), client.get(path)):
            assert response["Location"] == f"/accounts/login/?next={path}"


def test_the_status_changes_when_the_page_would(visit: Visit, other: User) -> None:
    states = []

    def poll() -> None:
        answer = visit.get("/status")
        states.append(answer.json())
        assert "no-store" in answer["Cache-Control"]
        assert f'data-state="{states[-1]["state"]}"' in visit.get().text

    poll()
    visit.pay()
    poll()
    settle(visit.fact())
    poll()
    assert len({state["state"] for state in states}) == 3
    said = [(state["status"], state["final"]) for state in states]
    assert said == [("pending", False), ("pending", False), ("paid", True)]

    assert Client().get(f"{visit.path}/status").status_code == 401
    stranger = Client()
    stranger.force_login(other)
    assert [stranger.get(address).status_code for address in (visit.path, f"{visit.path}/status")] == [404, 404]


def test_an_uncertain_close_is_shown_as_closing(visit: Visit) -> None:
    visit.pay()
    visit.wechat.fails(OutcomeUnknown("timed out"), "close", "query")
    assert b"not been charged" not in visit.get("/cancel").content, "who knows"
    visit.shopper.post(f"{visit.path}/cancel", visit.form("/cancel", of="/cancel"))
    page = visit.get().content
    assert (b"Closing this order" in page, b'/pay"' in page) == (True, False)


class TestHistory:
    def test_only_ones_own_newest_first_in_pages(
        self, shopper: Client, demo: User, other: User, mug: Product
    ) -> None:
        now = timezone.now()
        for user, count in ((demo, 21), (other, 1)):
            for _ in range(count):
                placed(user, mug=1)
        mine = [order.id.hex for order in Order.objects.filter(user=demo, created_at__gte=now)]

        page = shopper.get("/orders").text
        assert mine[0][-6:].upper() in page, "as the order's own page is headed"
        assert re.findall(r'class="row" href="/orders/(\w+)"', page) == mine[:20]
        older = shopper.get(re.findall(r'href="(\?before=\w+)"', page)[0].join(["/orders", ""])).text
        assert re.findall(r'class="row" href="/orders/(\w+)"', older) == mine[20:]
        assert "Newest" in older
        for broken in ("x", "g" * 32, "'" * 32):
            assert mine[0] in shopper.get("/orders", {"before": broken}).text, "the first page"

    def test_items_are_named_in_the_readers_language_unless_renamed_since(
        self, shopper: Client, demo: User, mug: Product, poster: Product
    ) -> None:
        Product.objects.filter(sku="mug").update(name_zh="搪瓷杯")
        order = placed(demo, mug=2, poster=1)
        shown = {"en": "Mug × 2 and 1 more", "zh-CN": "搪瓷杯 × 2 等 3 件"}
        for language, words in shown.items():
            assert words in shopper.get("/orders", headers={"Accept-Language": language}).text
        path, chinese = f"/orders/{order.id.hex}", {"Accept-Language": "zh-CN"}
        assert 'class="item-name">搪瓷杯<' in shopper.get(path, headers=chinese).text
        Product.objects.filter(sku="mug").update(name="Cup", name_zh="杯")
        assert 'class="item-name">Mug<' in shopper.get(path, headers=chinese).text, "as bought"


def test_a_forms_address_that_is_opened_leads_to_its_page(client: Client, demo: User) -> None:
    """By the language's switch, by Enter in the address bar, by a page that renews itself."""
    order = f"/orders/{'0' * 32}"
    pages = {
        **{f"{order}/{form}": order for form in ("pay", "method", "go-on")},
        "/products/mug/buy": "/products/mug",
        "/products/mug/like": "/products/mug",
        "/basket/mug/add": "/products/mug",
        "/basket/mug/remove": "/basket",
        "/basket/change": "/basket",
        "/basket/order": "/basket",
        "/flash-sales/mug/buy": "/flash-sales/mug",
        "/accounts/logout/": "/",
    }
    client.force_login(demo)
    assert [client.get(f"{order}/{form}").status_code for form in ("cancel", "refund")] == [404, 404], (
        "they ask first"
    )
    for ask in (client.get, client.head):
        assert {address: ask(address)["Location"] for address in pages} == pages
    assert {client.put(address).status_code for address in pages} == {405}


def test_an_unknown_address_has_our_page_with_debug_too(
    client: Client, transactional_db: None, settings: Any
) -> None:
    for debug in (False, True):
        settings.DEBUG = debug
        for ask in (client.get, client.post, Client(enforce_csrf_checks=True).post):
            answer = ask("/no/such/page")
            assert (answer.status_code, b"Page not found" in answer.content) == (404, True)
    switched = client.post("/i18n/setlang/", {"language": "en"}, headers={"Referer": "http://testserver/nowhere"})
    assert switched["Location"] == "http://testserver/nowhere"
    assert client.get("/favicon.ico")["Location"].endswith(".svg"), "browsers look for the icon there"


def test_login_goes_on_where_the_shopper_was(client: Client, demo: User, mug: Product, settings: Any) -> None:
    assert b"<code>demo</code>" not in client.get("/accounts/login/").content
    settings.DEBUG = True
    assert b"<code>demo</code>" in client.get("/accounts/login/").content, "the demo users are named"
    body = {"username": "demo", "password": "demo", "next": "/products/mug"}
    wrong = client.post("/accounts/login/", {**body, "password": "wrong"})
    assert b'role="alert"' in wrong.content
    assert client.post("/accounts/login/", body)["Location"] == "/products/mug"
    # a member who opens it is led on
    for asked, led in (("/orders", "/orders"), ("/accounts/login/", "/"), ("https://elsewhere.invalid/", "/")):
        assert client.get(f"/accounts/login/?next={asked}")["Location"] == led


def test_money_as_people_write_it() -> None:
    amounts = {"¥19.90": (1990, "CNY"), "¥0.05": (5, "CNY"), "¥1,234,567.89": (123456789, "CNY")}
    amounts |= {"$19.90": (1990, "USD"), "CHF 19.90": (1990, "CHF")}
    assert {money(*amount): amount for amount in amounts.values()} == amounts


@pytest.mark.parametrize(
    ("seconds", "language", "text"),
    [
        (3723, "en", "01:02:03"),
        (86_400, "en", "1 day 00:00:00"),
        (2 * 86_400 + 7, "en", "2 days 00:00:07"),
        (93_945, "zh-hans", "1天 02:05:45"),
    ],
)
def test_a_clock_counts_days(seconds: int, language: str, text: str) -> None:
    with override(language):
        assert clock(seconds * 1000) == text
