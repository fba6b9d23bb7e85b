"""The headers that graders ask of every answer of a shop behind https."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.integration.shop.web.test_pages import csrf_of

SETTINGS = Path(__file__).resolve().parents[4] / "shop" / "settings.py"
TAKEN_OVER = re.compile(
    r"SECURE_.*|.*_COOKIE_SECURE|LANGUAGE_COOKIE_.*|X_FRAME_OPTIONS|CONTENT_SECURITY_POLICY|MIDDLEWARE|ALLOWED_HOSTS"
)
YEAR_SECONDS = 31_536_000

PAGES = {
    "/": 200,
    "/accounts/login/": 302,  # of a member
    "/admin/login/": 200,
    "/admin/": 302,
    "/nowhere": 404,
    "/api/v1/products": 200,
    "/api/v1/nowhere": 404,
    "/api/schema/": 200,
    "/webhooks/wechat": 405,
    "POST /webhooks/wechat": 401,
    "POST /accounts/login/": 403,  # a form without a token
    "/static/shop/payonce.css": 200,
}


def set_up(settings: Any, monkeypatch: pytest.MonkeyPatch, **chosen: str) -> None:
    """Take over the shop's settings for a PUBLIC_URL that is https, and these values."""
    for name, value in {"PUBLIC_URL": "https://shop.example", "DEBUG": "0", **chosen}.items():
        monkeypatch.setenv(name, value)
    for name, value in runpy.run_path(str(SETTINGS)).items():
        if TAKEN_OVER.fullmatch(name):
            setattr(settings, name, value)


@pytest.fixture
def https(settings: Any, monkeypatch: pytest.MonkeyPatch, db: None) -> Client:
    """A browser that asks through the proxy that ends TLS."""
    set_up(settings, monkeypatch, HSTS_SUBDOMAINS="1", HSTS_PRELOAD="1")
    client = Client(
        enforce_csrf_checks=True,
        raise_request_exception=False,
        headers={"Host": "shop.example", "X-Forwarded-Proto": "https"},
    )
    client.force_login(User.objects.create_user("ann"))
    return client


def ask(client: Client, what: str) -> Any:
    method, _, path = what.rpartition(" ")
    return client.generic(method or "GET", path, b"{}", content_type="application/json")


def directives(policy: str) -> dict[str, list[str]]:
    return {name: sources for name, *sources in (part.split() for part in policy.split(";"))}


def faults_of(headers: Any) -> list[str]:
    """What a grader would take a mark off for."""
    transport = headers.get("Strict-Transport-Security", "").split("; ")
    content = directives(headers.get("Content-Security-Policy", "none"))
    sources = [source for one in content.values() for source in one]
    wanted = {
        "Strict-Transport-Security": transport == [f"max-age={YEAR_SECONDS}", "includeSubDomains", "preload"],
        "Content-Security-Policy": content.get("default-src") == ["'self'"]
        and content.get("object-src") == content.get("base-uri") == content.get("frame-ancestors") == ["'none'"]
        and not {"'unsafe-inline'", "'unsafe-eval'", "*", "http:", "data:"} & set(sources),
        "X-Content-Type-Options": headers.get("X-Content-Type-Options") == "nosniff",
        # a static file has frame-ancestors alone, which is what browsers go by
        "X-Frame-Options": headers.get("X-Frame-Options", "DENY") == "DENY",
        "Referrer-Policy": headers.get("Referrer-Policy") in {"no-referrer", "same-origin"},
        "Permissions-Policy": {"camera=()", "microphone=()", "geolocation=()", "payment=()"}
        <= set(headers.get("Permissions-Policy", "").split(", ")),
        "Cross-Origin-Opener-Policy": headers.get("Cross-Origin-Opener-Policy") == "same-origin",
        "Server": not {"Server", "X-Powered-By"} & set(headers),
        "forms lead to us or to a provider": content.get("form-action") == ["'self'", "https:"],
    }
    return [name for name, right in wanted.items() if not right]


def test_every_kind_of_answer_has_the_headers_of_an_a(https: Client) -> None:
    for what, status in PAGES.items():
        answer = ask(https, what)
        assert (answer.status_code, faults_of(answer.headers)) == (status, []), what
        assert ("Access-Control-Allow-Origin" in answer.headers) == what.startswith("/static/"), what
        for name, cookie in answer.cookies.items():
            assert (bool(cookie["secure"]), cookie["samesite"]) == (True, "Lax"), name
    answer.close()  # a static file is open until it is sent


def test_a_fault_of_ours_has_them_too(https: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr("shop.catalog.products.list_products", fail)
    monkeypatch.setattr("shop.catalog.cache.rendered", fail)
    for path in ("/", "/api/v1/products"):
        answer = ask(https, path)
        assert (answer.status_code, faults_of(answer.headers)) == (500, [])


def test_the_documentation_of_the_api_alone_may_write_its_own_styles(https: Client) -> None:
    answer = ask(https, "/api/docs/")
    assert (answer.status_code, faults_of(answer.headers)) == (200, ["Content-Security-Policy"])
    policy = directives(answer["Content-Security-Policy"])
    assert "script-src" not in policy
    assert policy["style-src"] == ["'self'", "'unsafe-inline'"]
    assert policy["default-src"] == ["'self'"]


def test_the_language_cookie_goes_over_https_alone(https: Client) -> None:
    body = {"language": "zh-hans", "csrfmiddlewaretoken": csrf_of(https.get("/"))}
    answer = https.post("/i18n/setlang/", body, headers={"Referer": "https://shop.example/"})
    cookie = answer.cookies["django_language"]
    assert (answer.status_code, cookie.value) == (302, "zh-hans")
    assert (cookie["secure"], cookie["httponly"], cookie["samesite"]) == (True, True, "Lax")


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({}, ""),
        ({"HSTS_SUBDOMAINS": "1"}, "; includeSubDomains"),
    ],
)
def test_subdomains_and_preloading_are_chosen(
    settings: Any, monkeypatch: pytest.MonkeyPatch, client: Client, chosen: dict[str, str], said: str
) -> None:
    set_up(settings, monkeypatch, **chosen)
    answer = client.get("/nowhere", headers={"Host": "shop.example", "X-Forwarded-Proto": "https"})
    assert answer["Strict-Transport-Security"] == f"max-age={YEAR_SECONDS}{said}"


def test_plain_http_is_led_to_https_and_a_missing_header_is_named(https: Client) -> None:
    answer = https.get("/products/mug", headers={"X-Forwarded-Proto": "http"})
    assert (answer.status_code, answer["Location"]) == (301, "https://shop.example/products/mug")
    assert len(faults_of({"Server": "x"})) == 8


def test_with_debug_plain_http_is_answered_while_providers_are_given_https(
    settings: Any, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    """As `make run` with the address of a tunnel, or of a test."""
    set_up(settings, monkeypatch, DEBUG="1")
    answer = client.get("/api/v1/orders", headers={"Host": "127.0.0.1:8000"})
    assert (answer.status_code, answer.get("Strict-Transport-Security")) == (401, None)
    assert not any((settings.SESSION_COOKIE_SECURE, settings.CSRF_COOKIE_SECURE, settings.LANGUAGE_COOKIE_SECURE))
    assert settings.SECURE_PROXY_SSL_HEADER


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/", "/nowhere", "/accounts/login/"])
def test_no_shared_cache_gives_two_guests_one_cookie(client: Client, path: str) -> None:
    """From which the key of a guest's session follows."""
    answer = client.get(path)
    assert "csrftoken" in answer.cookies
    assert "private" in answer["Cache-Control"]
