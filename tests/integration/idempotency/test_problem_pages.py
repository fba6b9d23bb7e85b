"""Problems of plain views: a page for a browser, the document for a program."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.db import OperationalError
from django.http import HttpResponse
from django.test import Client

from idempotency.errors import InProgress, Problem
from tests.integration.idempotency.forms import BROWSER, shows, use_templates
from tests.integration.idempotency.protocol import doors
from tests.integration.idempotency.urls import PLAN

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.integration.idempotency.forms"),
    pytest.mark.usefixtures("plain_project"),
]

KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"


def unkeyed(client: Client, **headers: str) -> HttpResponse:
    return client.post("/async", headers=headers)  # type: ignore[return-value]


def test_a_form_without_its_token_is_a_page_that_leads_back_and_to_no_other_site(client: Client) -> None:
    answer = unkeyed(client, Accept=BROWSER, Referer="http://testserver/baskets/7")
    shows(answer, 400, "idempotency_key_missing", "This page is out of date")
    page = answer.content.decode()
    assert '<a href="http://testserver/baskets/7">Back to the form</a>' in page
    assert not re.search(r"<script|<style| style=| on\w+=", page)  # a strict Content-Security-Policy
    assert finders.find(re.search(r'href="/static/([^"]+)"', page)[1]) is not None  # type: ignore[index]
    assert {"Accept", "Accept-Language"} <= set(answer["Vary"].split(", "))
    page = unkeyed(client, Accept=BROWSER, Referer="https://elsewhere.example/").content.decode()
    assert "elsewhere" not in page


def test_a_page_leads_to_no_fresh_form_while_the_first_may_still_count(client: Client) -> None:
    PLAN["raise"] = InProgress()
    answer = client.get("/raising", headers={"Accept": BROWSER, "Referer": "http://testserver/alone"})
    shows(answer, 409, "idempotency_in_progress", "We are still working on it")
    assert answer["Retry-After"] == "1"
    assert "<a" not in answer.content.decode()


@pytest.mark.parametrize("redis", ["default", None])
def test_a_form_that_was_sent_with_other_content_leads_to_the_first_result(
    client: Client, settings: Any, redis: str | None
) -> None:
    settings.IDEMPOTENCY = {"REDIS": redis}
    headers = {"Accept": BROWSER, "Idempotency-Key": KEY}
    first = client.post("/alone", {"note": "a"}, headers=headers)
    answer = client.post("/alone", {"note": "b"}, headers=headers)
    shows(answer, 422, "idempotency_key_reused", "You have sent this form before")
    assert answer["Location"] == first["Location"]
    assert f'<a href="{first["Location"]}">See the result</a>' in answer.content.decode()


def test_a_program_gets_the_document_and_a_browser_the_page(client: Client) -> None:
    without = unkeyed(client)
    assert (without.status_code, without["Content-Type"]) == (400, "application/problem+json")
    assert without.json()["code"] == "idempotency_key_missing"  # type: ignore[attr-defined]
    assert "Accept" not in without.get("Vary", "").split(", ")
    programs = ["", "*/*", "application/json", "application/problem+json, text/html;q=0.9", "image/png"]
    for accept in (*programs, "text/html;q=0.5, */*;q=0.6", "text/html;q=0, */*"):
        assert unkeyed(client, Accept=accept).content == without.content
    for accept in (BROWSER, "text/html", "text/*", "application/json;q=0.1, text/html"):
        answer = unkeyed(client, Accept=accept)
        shows(answer, 400, "idempotency_key_missing", "This page is out of date")


def test_a_project_draws_the_page_itself_or_has_ours_though_its_templates_leave_apps_out(
    client: Client, settings: Any
) -> None:
    use_templates(settings, {"idempotency/problem.html": "Ours: {{ title }} {{ problem.code }} {{ user }}"})
    answer = unkeyed(client, Accept=BROWSER)
    assert answer.content.decode() == "Ours: This page is out of date idempotency_key_missing AnonymousUser"
    for templates in ([], [{"BACKEND": "django.template.backends.django.DjangoTemplates"}]):
        settings.TEMPLATES = templates
        answer = unkeyed(client, Accept=BROWSER)
        shows(answer, 400, "idempotency_key_missing", "This page is out of date")


def test_what_is_no_document_stays_as_the_view_wrote_it(client: Client) -> None:
    for written in ("not JSON", "[]", "stream", "gzip"):
        PLAN["written"] = written
        answer = client.post("/odd", headers={"Accept": BROWSER, "Idempotency-Key": KEY})
        assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
        assert b"".join(answer) == written.encode()


def test_what_any_view_raises_is_a_page_and_an_outage_asks_nothing_of_the_database(
    client: Client, user: User, settings: Any, django_assert_num_queries: Any
) -> None:
    errors = {"Refused": Problem(409, "refused", "No.", title="Refused"), "We&#x27;ll": OperationalError("away")}
    for title, error in errors.items():
        PLAN["raise"] = error
        answer = client.get("/raising", headers={"Accept": BROWSER})
        assert f"<h1>{title}" in answer.content.decode()
        assert client.get("/raising").json()["status"] == answer.status_code
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    use_templates(settings, {"idempotency/problem.html": "{{ title }} {{ user.username }}"})
    client.force_login(user)
    with django_assert_num_queries(0):
        answer = client.get("/raising", headers={"Accept": BROWSER})
    assert answer.content.decode().startswith("We&#x27;ll")


@pytest.mark.urls("tests.integration.idempotency.protocol.doors")
def test_of_the_doors_only_plain_views_have_pages(client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    for kind in sorted(doors.MARKED):
        answer = client.post(f"/marked/{kind}", {"answer": ""}, headers={"Accept": BROWSER})
        is_plain = kind.endswith(("function", "class", "class with a decorator", "class as a whole"))
        kind_of_answer = "text/html; charset=utf-8" if is_plain else "application/problem+json"
        assert (answer.status_code, answer["Content-Type"]) == (400, kind_of_answer), kind
