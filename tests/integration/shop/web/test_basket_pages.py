"""The basket: a double click adds once, an order takes out what it ordered and no more."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.utils import timezone

from shop import tasks
from shop.models import Order, Product
from shop.orders import basket
from shop.orders import placing as orders
from shop.platform.sessions import SessionStore, guest_key
from tests.integration.shop.web.test_pages import csrf_of, form_of, log_in
from tests.threads import at_once

pytestmark = pytest.mark.usefixtures("mug")

ADD_MUG = "/basket/mug/add"


def the_form(page: Any, *, button: str = "") -> dict[str, str]:
    """Return the basket's fields, with the token of the button that goes to `button`."""
    html = page.text
    [form] = re.findall(r'<form id="basket".*?</form>', html, re.S)
    tags = re.findall(r'<input form="basket"[^>]*>', html) + re.findall(r"<input[^>]*>", form)
    named = [dict(re.findall(r'(\w+)="([^"]*)"', tag)) for tag in tags]
    fields = {one["name"]: one["value"] for one in named}
    if button:
        fields["idempotency_token"] = re.findall(rf'formaction="{button}"[^>]*value="([^"]+)"', form)[0]
    return fields


def guest() -> Client:
    return Client(enforce_csrf_checks=True)


def put(client: Client, sku: str, quantity: int) -> Any:
    page = client.get(f"/products/{sku}")
    token = re.findall(rf'formaction="/basket/{sku}/add"[^>]*value="([^"]+)"', page.text)
    fields = form_of(page, f"/basket/{sku}/add") if not token else {"idempotency_token": token[0]}
    body = {**fields, "csrfmiddlewaretoken": csrf_of(page), "quantity": str(quantity)}
    answer = client.post(f"/basket/{sku}/add", body)
    client.extra_fields = body  # type: ignore[attr-defined]  to be sent again
    return answer


def held(client: Client) -> dict[str, int]:
    return basket.contents(session_of(client))


def session_of(client: Client) -> SessionStore:
    """The session of the browser, by its session cookie or as the guest of its CSRF cookie."""
    if "sessionid" in client.cookies:
        return client.session  # type: ignore[return-value]
    return SessionStore(guest=lambda: guest_key(client.cookies["csrftoken"].value))


def order_all(client: Client, **changed: str) -> tuple[dict[str, str], Any]:
    fields = the_form(client.get("/basket"), button="/basket/order") | changed
    return fields, client.post("/basket/order", fields)


def test_a_double_click_adds_once_and_two_tabs_add_twice(shopper: Client) -> None:
    first = put(shopper, "mug", 2)
    again = shopper.post(ADD_MUG, shopper.extra_fields)  # type: ignore[attr-defined]
    assert (first["Location"], again["Location"], again["Idempotent-Replayed"]) == ("/basket", "/basket", "true")
    assert held(shopper) == {"mug": 2}
    put(shopper, "mug", 98)
    assert held(shopper) == {"mug": 99}
    assert '<span class="count">99</span>' in shopper.get("/").text
    stale = shopper.post(ADD_MUG, {**shopper.extra_fields, "quantity": "5"})  # type: ignore[attr-defined]
    assert stale["Location"] == "/basket"
    assert "has been refreshed" in shopper.get("/basket").text
    assert held(shopper) == {"mug": 99}


def test_buying_and_the_basket_are_two_intents_of_one_page(shopper: Client) -> None:
    page = shopper.get("/products/mug")
    buy = form_of(page, "/products/mug/buy")
    token = re.findall(r'formaction="/basket/mug/add"[^>]*value="([^"]+)"', page.text)[0]
    # a browser sends the field of the form first, then the pressed button's
    body = {**buy, "idempotency_token": [buy["idempotency_token"], token]}
    assert shopper.post(ADD_MUG, body)["Location"] == "/basket"
    assert shopper.post("/products/mug/buy", buy)["Location"] == f"/orders/{Order.objects.get().id.hex}"
    assert held(shopper) == {"mug": 1}


def test_a_guest_fills_it_logs_in_and_orders_all(demo: User, poster: Product) -> None:
    client = guest()
    put(client, "mug", 2)
    put(client, "poster", 1)
    page = client.get("/basket").text
    assert "formaction" not in page
    typed = the_form(client.get("/basket")) | {"quantity.mug": "3", "login": "1"}
    assert client.post("/basket/change", typed)["Location"] == "/accounts/login/?next=/basket"
    assert held(client) == {"mug": 3, "poster": 1}, "what was typed is there after the login"
    client.post("/basket/change", the_form(client.get("/basket")) | {"quantity.mug": "2"})
    assert (
        client.post("/basket/order", the_form(client.get("/basket")))["Location"]
        == "/accounts/login/?next=/basket"
    )

    assert log_in(client)["Location"] == "/basket"
    fields, first = order_all(client)
    order = Order.objects.get()
    assert first["Location"] == f"/orders/{order.id.hex}"
    assert (order.total_minor, {item.sku: item.quantity for item in order.items.all()}) == (
        2 * 1990 + 4500,
        {"mug": 2, "poster": 1},
    )
    assert held(client) == {}
    put(client, "mug", 1)
    again = client.post("/basket/order", fields)
    assert (again["Location"], again["Idempotent-Replayed"]) == (first["Location"], "true")
    assert held(client) == {"mug": 1}, "a replay takes nothing out a second time"
    assert Order.objects.count() == 1


def test_a_login_sent_again_keeps_the_basket(demo: User) -> None:
    """A double click, or an answer lost on the way: both requests carry the guest's session."""
    client, duplicate = guest(), guest()
    put(client, "mug", 2)
    csrf = csrf_of(client.get("/accounts/login/"))
    duplicate.cookies = client.cookies.copy()  # type: ignore[assignment]
    as_guest = session_of(client).session_key
    login = {"csrfmiddlewaretoken": csrf, "username": "demo", "password": "demo", "next": "/basket"}
    for browser in (client, duplicate):
        assert browser.post("/accounts/login/", login)["Location"] == "/basket"
        assert (browser.session[SESSION_KEY], held(browser)) == (str(demo.pk), {"mug": 2})
    assert len({as_guest, client.session.session_key, duplicate.session.session_key}) == 3, "no login keeps a key"
    order_all(duplicate)
    assert Session.objects.get(pk=as_guest).get_decoded() == {"basket": {"mug": 2}}, "nothing of the member"


def test_looking_leaves_no_session_and_the_first_form_begins_one(poster: Product) -> None:
    client = guest()
    for path in ("/", "/products/mug", "/basket", "/accounts/login/", "/nowhere", "/admin/login/", "/"):
        client.get(path)
    assert not Session.objects.exists()
    put(client, "mug", 2)
    assert (held(client), Session.objects.count()) == ({"mug": 2}, 1)
    assert client.cookies["sessionid"]["httponly"]
    assert '<span class="count">2</span>' in client.get("/").text
    assert held(guest_with(client)) == {"mug": 2}


def test_copies_of_a_guests_first_form_and_tabs_opened_before_it_meet(poster: Product) -> None:
    """A double click before any session is there; and a tab that was drawn when there was none."""
    client = guest()
    tabs = {sku: client.get(f"/products/{sku}") for sku in ("mug", "poster")}
    fields = {sku: form_of(page, f"/basket/{sku}/add") | {"quantity": "2"} for sku, page in tabs.items()}
    browsers = [guest_with(client) for _ in range(4)]
    answers = at_once(*[lambda each=each: each.post(ADD_MUG, fields["mug"]) for each in browsers])
    assert {answer.status_code for answer in answers} <= {302, 409}
    assert client.post("/basket/poster/add", fields["poster"])["Location"] == "/basket"
    assert held(client) == {"mug": 2, "poster": 2}
    assert Session.objects.count() == 1
    del client.cookies["sessionid"]  # no answer of these came back, and the shopper looks by themselves
    assert "Poster" in client.get("/basket").text
    assert '<span class="count">4</span>' in client.get("/").text


def test_a_guest_whose_session_is_over_begins_another() -> None:
    client = guest()
    put(client, "mug", 1)
    Session.objects.update(expire_date=timezone.now())
    assert held(client) == {}
    put(client, "mug", 3)
    assert held(client) == {"mug": 3}
    client.cookies["sessionid"] = "x" * 32  # of a session that is gone
    assert '<span class="count">3</span>' in client.get("/basket").text
    put(client, "mug", 1)
    del client.cookies["sessionid"]
    assert held(client) == {"mug": 4}


def test_who_logs_in_or_out_leaves_the_guests_key_behind(demo: User) -> None:
    client = guest()
    put(client, "mug", 1)
    as_guest = guest_with(client)
    log_in(client)
    assert b"Your orders" in client.get("/").content
    assert b"Your orders" not in as_guest.get("/").content, "the guest's cookie is no member's"
    client.post("/accounts/logout/", {"csrfmiddlewaretoken": csrf_of(client.get("/"))})
    as_guest.post("/accounts/logout/", {"csrfmiddlewaretoken": as_guest.cookies["csrftoken"].value})
    assert as_guest.cookies["sessionid"].value == ""
    assert b"Your orders" not in client.get("/").content
    assert b'class="count"' not in client.get("/").content


def guest_with(client: Client) -> Client:
    """The same browser, for what it does at the same moment."""
    browser = guest()
    browser.cookies = client.cookies.copy()  # type: ignore[assignment]
    return browser


def test_what_another_tab_put_in_meanwhile_stays(shopper: Client, poster: Product) -> None:
    put(shopper, "mug", 2)
    fields = the_form(shopper.get("/basket"), button="/basket/order") | {"quantity.mug": "1"}
    put(shopper, "mug", 3)
    put(shopper, "poster", 1)
    assert shopper.post("/basket/order", fields).status_code == 302
    assert Order.objects.get().items.get().quantity == 1, "what the page said"
    assert held(shopper) == {"mug": 3, "poster": 1}, "what the page did not know"


def test_tabs_at_the_same_instant_make_one_order(shopper: Client, poster: Product) -> None:
    """The session's row is locked until the order is committed."""
    put(shopper, "mug", 2)
    tabs = [the_form(shopper.get("/basket"), button="/basket/order") for _ in range(3)]

    def pressed(fields: dict[str, str]) -> Callable[[], str]:
        return lambda: str(guest_with(shopper).post("/basket/order", fields)["Location"])

    gone_to = at_once(*map(pressed, tabs))
    order = Order.objects.get()
    assert sorted(gone_to) == ["/basket", "/basket", f"/orders/{order.id.hex}"]
    assert (held(shopper), Product.objects.get(sku="mug").stock) == ({}, 98)

    put(shopper, "poster", 1)
    replays = [shopper.post("/basket/order", fields) for fields in tabs]
    assert [replay["Location"] for replay in replays] == gone_to
    assert {replay["Idempotent-Replayed"] for replay in replays} == {"true"}
    assert "Your basket has changed since you opened this page." in shopper.get("/basket").text
    assert (Order.objects.count(), held(shopper)) == (1, {"poster": 1})


def test_what_is_not_in_the_basket_is_not_ordered_from_it(shopper: Client, poster: Product) -> None:
    put(shopper, "mug", 2)
    put(shopper, "poster", 1)
    tabs = [
        the_form(shopper.get("/basket"), button="/basket/order") | {"held.mug": forged, "quantity.mug": "1"}
        for forged in ("2", "0")
    ]
    shopper.post("/basket/mug/remove", form_of(shopper.get("/basket"), "/basket/mug/remove"))
    for fields in tabs:
        assert shopper.post("/basket/order", fields)["Location"] == "/basket"
        assert (Order.objects.count(), held(shopper)) == (0, {"poster": 1})
    assert order_all(shopper, **{"quantity.mug": "0", "held.mug": "2"})[1].status_code == 302
    assert Order.objects.get().items.get().sku == "poster", "what is not wanted need not be there"


def test_quantities_are_set_and_products_taken_out(shopper: Client, poster: Product) -> None:
    put(shopper, "mug", 2)
    put(shopper, "poster", 1)
    fields = the_form(shopper.get("/basket")) | {"quantity.mug": "7"}
    for _ in range(2):
        assert shopper.post("/basket/change", fields)["Location"] == "/basket"
    assert held(shopper) == {"mug": 7, "poster": 1}
    out = form_of(shopper.get("/basket"), "/basket/mug/remove")
    for _ in range(2):
        assert shopper.post("/basket/mug/remove", out)["Location"] == "/basket"
    assert held(shopper) == {"poster": 1}
    wrong = shopper.post("/basket/change", the_form(shopper.get("/basket")) | {"quantity.poster": "-1"})
    assert (wrong.status_code, b'id="error-poster"' in wrong.content) == (400, True)
    many = shopper.post("/basket/change", the_form(shopper.get("/basket")) | {"quantity.poster": "100"})
    assert "At most 99." in many.text
    assert order_all(shopper, **{"quantity.poster": "0"})[1]["Location"] == "/basket"
    assert not Order.objects.exists()
    without = the_form(shopper.get("/basket"))
    del without["idempotency_token"]
    assert shopper.post("/basket/order", without).status_code == 400
    assert held(shopper) == {"poster": 1}


def test_out_of_stock_is_said_at_the_line_and_can_be_mended(shopper: Client, poster: Product) -> None:
    put(shopper, "mug", 3)
    put(shopper, "poster", 9)
    fields = the_form(shopper.get("/basket"), button="/basket/order")
    Product.objects.filter(sku="poster").update(stock=4)
    refused = shopper.post("/basket/order", fields)
    page = refused.text
    assert (refused.status_code, "Not enough in stock" in page) == (409, True)
    assert re.search(r'id="trouble-poster">Only 4 left<', page)
    assert 'id="trouble-mug"' not in page, "the mugs that were taken first are back before the page is drawn"
    assert Product.objects.get(sku="mug").stock == 100
    assert held(shopper) == {"mug": 3, "poster": 9}

    Product.objects.filter(sku="poster").update(stock=9)
    replay = shopper.post("/basket/order", fields)
    assert (replay.status_code, replay["Idempotent-Replayed"]) == (409, "true")
    mended = the_form(replay, button="/basket/order") | {"quantity.poster": "4"}
    assert shopper.post("/basket/order", mended).status_code == 302
    assert held(shopper) == {}


def test_the_basket_says_what_is_left_and_takes_only_that(shopper: Client, poster: Product) -> None:
    put(shopper, "mug", 3)
    put(shopper, "poster", 9)
    page = shopper.get("/basket").text
    assert ("Only 10 left" in page, 'max="10"' in page, "Take only what" in page) == (True, True, False)
    for stock, left in ((4, {"mug": 3, "poster": 4}), (0, {"mug": 3})):
        Product.objects.filter(sku="poster").update(stock=stock)
        assert "Take only what" in shopper.get("/basket").text
        fields = the_form(shopper.get("/basket")) | {"fit": "1"}
        for _ in range(2):
            assert shopper.post("/basket/change", fields)["Location"] == "/basket"
        assert held(shopper) == left


def test_lines_that_cannot_be_ordered(shopper: Client, poster: Product, sneaker: Product) -> None:
    put(shopper, "mug", 1)
    put(shopper, "poster", 1)
    Product.objects.filter(sku="poster").update(currency="USD")
    assert "items in different currencies" in shopper.get("/basket").text
    _, refused = order_all(shopper)
    assert (refused.status_code, b"Different currencies" in refused.content) == (409, True)
    Product.objects.filter(sku="poster").update(currency="CNY", flash_only=True)
    assert "Flash sale only." in shopper.get("/basket").text
    Product.objects.filter(sku="poster").delete()
    assert "No longer available." in shopper.get("/basket").text
    _, refused = order_all(shopper)
    assert (refused.status_code, held(shopper)) == (404, {"mug": 1, "poster": 1})
    unsold = shopper.post("/basket/sneaker/add", {**form_of(shopper.get("/products/mug"), "/products/mug/buy")})
    assert (unsold.status_code, b"Flash sale only" in unsold.content) == (409, True)


def test_its_size_is_bounded(shopper: Client, poster: Product, monkeypatch: Any) -> None:
    monkeypatch.setattr(basket, "MAX_ITEMS", 1)
    assert [put(shopper, sku, 1).status_code for sku in ("mug", "poster", "mug")] == [302, 409, 302]
    assert held(shopper) == {"mug": 2}


def test_the_order_and_the_basket_are_one_commit(shopper: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The constraint: both are written in the transaction that the ledger's unique row judges."""
    put(shopper, "mug", 2)
    fields = the_form(shopper.get("/basket"), button="/basket/order")
    inside = []
    write = Session.save

    def save(self: Session, *args: Any, **kwargs: Any) -> None:
        inside.append(connection.in_atomic_block and Order.objects.count() == 1)
        write(self, *args, **kwargs)

    def break_after(**given: Any) -> None:
        monkeypatch.setattr(orders, "create_order", create)
        create(**given)
        raise RuntimeError

    create = orders.create_order
    monkeypatch.setattr(Session, "save", save)
    monkeypatch.setattr(orders, "create_order", break_after)
    shopper.raise_request_exception = False
    assert shopper.post("/basket/order", fields).status_code == 500
    assert (held(shopper), Order.objects.count()) == ({"mug": 2}, 0)
    assert shopper.post("/basket/order", fields).status_code == 302
    assert (held(shopper), Order.objects.count(), inside[-1]) == ({}, 1, True)


def test_sessions_that_are_over_are_removed_batch_by_batch(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "SESSIONS_BATCH", 2)
    monkeypatch.setattr(tasks, "BATCHES_MAX", 3)
    now = timezone.now()
    ends = [now] * 9 + [now + timedelta(hours=1)]
    Session.objects.bulk_create(Session(session_key=f"{key:032}", expire_date=end) for key, end in enumerate(ends))
    assert [tasks.clear_sessions(timestamp=0) for _ in range(3)] == [6, 3, 0]
    assert Session.objects.get().session_key == f"{9:032}"
