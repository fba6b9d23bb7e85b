"""Forms of browsers: one effect from however many pages."""

import re
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, Group, User
from django.contrib.sessions.models import Session
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.template import RequestContext, Template, engines
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.urls import path
from django.views.decorators.cache import cache_control, cache_page

from idempotency.models import LedgerEntry
from tests.integration.idempotency.conftest import Effects
from tests.integration.idempotency.forms import BROWSER, shows
from tests.integration.idempotency.urls import PLAN
from tests.threads import at_once

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.integration.idempotency.forms"),
    pytest.mark.usefixtures("plain_project"),
]

FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]+)">')


class Browser:
    """One visitor's browser; a tab is the form that it loaded."""

    def __init__(self, user: User | None, address: str, **headers: str) -> None:
        self.client = Client(enforce_csrf_checks=True, headers={"Accept": BROWSER, **headers})
        self.address = address
        if user is not None:
            self.client.force_login(user)

    def open(self) -> dict[str, str]:
        answer = self.client.get(self.address)
        assert answer.status_code == 200
        return fields_of(answer)

    def send(self, tab: dict[str, str], **fields: str) -> Any:
        return self.client.post(self.address, {**tab, **fields})


def fields_of(answer: Any) -> dict[str, str]:
    found = dict(FIELD.findall(answer.content.decode()))
    assert {"csrfmiddlewaretoken", "idempotency_token"} <= set(found)
    return found


@pytest.fixture
def basket(transactional_db: None) -> Group:
    return Group.objects.create(name="basket")


@pytest.fixture
def effects(basket: Group) -> Effects:
    """How many orders are committed."""
    return lambda: Group.objects.count() - 1


@pytest.fixture
def browser(user: User, basket: Group) -> Browser:
    return Browser(user, f"/baskets/{basket.pk}")


def test_a_double_click_and_two_tabs_are_one_order_and_so_is_one_after_a_rotation_of_the_secret(
    browser: Browser, effects: Effects
) -> None:
    tabs = browser.open(), browser.open()
    assert tabs[0]["csrfmiddlewaretoken"] != tabs[1]["csrfmiddlewaretoken"]
    first, again = (browser.send(tabs[0], note="a") for _ in range(2))
    assert (first.status_code, again.status_code, again["Idempotent-Replayed"]) == (302, 302, "true")
    with override_settings(SECRET_KEY="new" * 20, SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        for tab in tabs[1], browser.open():
            assert browser.send(tab, note="a")["Location"] == first["Location"]
    assert effects() == 1


def test_an_intent_stays_open_by_a_page_alone_and_without_one_each_page_counts(
    browser: Browser, basket: Group, effects: Effects
) -> None:
    tab = browser.open()
    browser.address = f"/previewed/{basket.pk}"
    assert [browser.send(tab, note=note).status_code for note in "ab"] == [302, 422]
    browser.address = "/alone"
    tabs = browser.open(), browser.open()
    assert browser.send(tabs[0], note="a")["Location"] == browser.send(tabs[0], note="a")["Location"]
    browser.send(tabs[1], note="a")
    assert effects() == 3


def test_another_basket_and_another_visitor_are_other_orders(
    browser: Browser, basket: Group, effects: Effects
) -> None:
    other = Group.objects.create(name="another basket")
    browser.send(browser.open())
    browser.address = f"/baskets/{other.pk}"
    browser.send(browser.open())
    stranger = Browser(User.objects.create_user("bob"), f"/baskets/{basket.pk}")
    tab = stranger.open()
    stranger.send(tab)
    assert effects() == 4  # and the other basket
    theirs = browser.open() | {"idempotency_token": tab["idempotency_token"]}
    shows(browser.send(theirs), 409, "token_unknown", "This page has expired")


def test_tabs_at_the_same_moment_are_one_order(browser: Browser, effects: Effects) -> None:
    tabs = [browser.open() for _ in range(4)]
    cookies = browser.client.cookies

    def send(tab: dict[str, str]) -> int:
        client = Client(enforce_csrf_checks=True, headers={"Accept": BROWSER})
        client.cookies = cookies
        return client.post(browser.address, tab).status_code

    statuses = at_once(*(partial(send, tab) for tab in tabs))
    assert set(statuses) <= {302, 409}
    assert 302 in statuses
    assert effects() == 1


SHOWN = "{% load idempotency %}{% idempotency_token %}"


def shown(request: Any) -> HttpResponse:
    return HttpResponse(Template(SHOWN).render(RequestContext(request)))


def shown_late(request: Any) -> TemplateResponse:
    return TemplateResponse(request, engines["django"].from_string(SHOWN))


class Cached:
    urlpatterns = [
        path("cached", cache_page(60)(shown)),
        path("late", cache_page(60)(shown_late)),
        path("public", cache_control(public=True, max_age=60)(shown)),
    ]


@pytest.mark.parametrize("address", ["/cached", "/late", "/public"])
@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_a_page_with_a_token_is_in_no_cache(effects: Effects, address: str, client: Any) -> None:
    """Its next visitor's order would get the first one's answer."""
    of_site = ("django.middleware.cache.UpdateCacheMiddleware", "django.middleware.cache.FetchFromCacheMiddleware")
    middleware = [of_site[0], *settings.MIDDLEWARE, of_site[1]]
    with override_settings(ROOT_URLCONF=Cached, MIDDLEWARE=middleware):
        get = client().get
        pages = [async_to_sync(get)(address) if iscoroutinefunction(get) else get(address) for _ in range(2)]
    assert len({FIELD.findall(page.content.decode())[0] for page in pages}) == 2
    for page in pages:
        said = set(page["Cache-Control"].split(", "))
        assert ({"private", "no-cache"} <= said, "public" in said) == (True, False)


def test_a_form_that_is_shown_with_its_errors_can_be_corrected(browser: Browser, effects: Effects) -> None:
    other_tab, tab = browser.open(), browser.open()
    wrong = browser.send(tab, note="too long")
    assert wrong.status_code == 200
    assert browser.send(tab, note="too long")["Idempotent-Replayed"] == "true"
    right = browser.send(fields_of(wrong), note="short")
    assert (right.status_code, effects()) == (302, 1)
    assert browser.send(other_tab, note="short")["Location"] == right["Location"]
    other = browser.send(browser.open(), note="more")
    shows(other, 422, "idempotency_key_reused", "You have sent this form before")
    assert other["Link"].endswith('rel="describedby"; type="text/html"')
    assert effects() == 1


def test_a_refused_form_can_be_corrected_and_sent_again_from_a_new_page(
    browser: Browser, effects: Effects
) -> None:
    tab, other_tab = browser.open(), browser.open()
    PLAN["sold out"] = True
    refused = browser.send(tab, note="a")
    shows(refused, 409, "out_of_stock", "Sold out")
    assert "Nothing is left of it." in refused.content.decode()
    for note in ("c", "c"):
        browser.send(browser.open(), note=note)
    assert LedgerEntry.objects.count() == 3, "a refusal after a refusal counts on"
    PLAN["sold out"] = False
    again = browser.send(other_tab, note="a")  # a copy: the refusal
    assert (again.status_code, again["Idempotent-Replayed"], effects()) == (409, "true", 0)
    ordered = browser.send(browser.open(), note="a")
    assert (ordered.status_code, effects()) == (302, 1)
    assert browser.send(tab, note="b").status_code == 422
    assert effects() == 1


def test_an_expired_page_says_so_unless_it_was_sent(browser: Browser, effects: Effects) -> None:
    tab = browser.open()
    with override_settings(IDEMPOTENCY={"TOKEN_SECONDS": 1e-9}):
        shows(browser.send(tab), 409, "token_unknown", "This page has expired")
    assert effects() == 0
    first = browser.send(tab)
    with override_settings(IDEMPOTENCY={"TOKEN_SECONDS": 1e-9}):
        assert browser.send(tab)["Location"] == first["Location"]
        assert browser.send(tab, note="b").status_code == 422
    assert effects() == 1


def test_a_guest_has_one_order_from_the_tabs_of_a_session_and_gets_none(basket: Group, effects: Effects) -> None:
    guest = Browser(None, f"/baskets/{basket.pk}")
    tabs = guest.open(), guest.open()
    assert guest.send(tabs[0])["Location"] == guest.send(tabs[0])["Location"]
    assert guest.send(tabs[1]).status_code == 302, "without a session each page counts alone"
    assert (effects(), Session.objects.count(), set(guest.client.cookies)) == (2, 0, {"csrftoken"})
    session = guest.client.session
    session["basket"] = basket.pk
    session.save()
    tabs = guest.open(), guest.open()
    assert guest.send(tabs[0])["Location"] == guest.send(tabs[1])["Location"]
    assert effects() == 3


def test_a_token_that_the_view_does_not_read_is_refused_while_a_project_is_written(
    user: User, basket: Group, effects: Effects, settings: Any
) -> None:
    settings.DEBUG, settings.IDEMPOTENCY = True, {"REDIS": None}
    browser = Browser(user, f"/baskets/{basket.pk}")
    tab = browser.open()
    with pytest.raises(
        ImproperlyConfigured, match=r"raising gets a form .* and does not read it.*Put @idempotent on it"
    ):
        browser.client.post("/raising", {**tab, "note": "a"})
    assert browser.send(tab, note="a").status_code == 302
    assert effects() == 1


def render_tag(intent: Any, user: Any = None) -> str:
    request = RequestFactory().get("/")
    request.user = user or AnonymousUser()
    template = Template("{% load idempotency %}{% idempotency_token intent=intent %}")
    return template.render(RequestContext(request, {"intent": intent}))


def test_an_intent_is_a_saved_object_a_number_or_a_text(user: User, basket: Group) -> None:
    for wrong in ("", None, False, [basket], AnonymousUser(), Group(name="not saved")):
        with pytest.raises(ValueError, match="same on every page"):
            render_tag(wrong)
    for intent in (7, "basket 7"):
        pages = [render_tag(each, user) for each in (intent, str(intent), basket)]
        assert len({FIELD.search(page)[2].partition("n")[0] for page in pages}) == 2  # type: ignore[index]


def test_while_switched_off_a_page_asks_no_ledger(user: User, django_assert_num_queries: Any) -> None:
    with override_settings(IDEMPOTENCY={"ENABLED": False}), django_assert_num_queries(0):
        assert "idempotency_token" in render_tag(7, user)


def test_a_stored_refusal_is_a_page_or_a_document_for_each_reader(browser: Browser) -> None:
    tab = browser.open()
    PLAN["sold out"] = True
    page = browser.send(tab)
    document = browser.client.post(browser.address, tab, headers={"Accept": "*/*"})
    again = browser.client.post(browser.address, tab, headers={"Accept-Language": "zh-hans"})
    assert document.json() | {"code": "out_of_stock", "title": "Sold out"} == document.json()
    assert document["Content-Type"] == "application/problem+json"
    assert document["Idempotent-Replayed"] == again["Idempotent-Replayed"] == "true"
    assert (page.status_code, again.status_code) == (409, 409)
    assert '<html lang="en">' in page.content.decode()
    assert '<html lang="zh-hans">' in again.content.decode()
