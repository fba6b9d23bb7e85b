"""The developer's first pages: problem codes, the calls of the contract, the quickstart."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from shop import errors
from tests.integration.shop.web.test_pages import INLINE

pytestmark = pytest.mark.django_db

OF_PAGES = {"basket_full", "basket_changed", "payment_begun"}  # never by the API


def codes_of(schema: dict[str, Any]) -> set[str]:
    """The codes that the description promises."""
    calls = [call for calls in schema["paths"].values() for call in calls.values()]
    answers = [answer["description"] for call in calls for answer in call["responses"].values()]
    return {code for text in answers if text.startswith("code: ") for code in re.findall(r"`(\w+)`", text)}


def test_every_code_has_a_line_where_a_problems_type_leads(client: Client) -> None:
    page = client.get("/api/docs/problems").text
    lines = set(re.findall(r'<div id="(\w+)">', page))
    schema = client.get("/api/schema/?format=json").json()
    refusals = {one.CODE for one in vars(errors).values() if isinstance(one, type) and hasattr(one, "CODE")}
    assert len(codes_of(schema)) > 30
    assert (codes_of(schema) | refusals) - lines == OF_PAGES
    assert not INLINE.search(page)
    refused = client.get("/api/v1/orders").json()
    address, _, code = refused["type"].rpartition("#")
    assert (client.get(address).status_code, code) == (200, "not_authenticated")
    assert code in lines


def test_it_has_every_call_of_the_contract_by_the_same_name(client: Client) -> None:
    contract = Path("docs/contract.md").read_text().partition("## 2. The API")[2].partition("## 3.")[0]
    rows = re.findall(r"^((?:`[A-Z]+ |`PUT`).*?) \|", contract, re.MULTILINE)
    promised = {f"/api/v1/{path}" for row in rows for path in re.findall(r"`(?:[A-Z]+ )?([a-z][^`]+)`", row)}
    assert len(promised) == 14
    schema = client.get("/api/schema/?format=json").json()
    assert [tag["name"] for tag in schema["tags"]][:2] == ["orders", "payments"]
    paths = schema["paths"]
    assert paths.keys() == promised
    for path, calls in paths.items():
        for call in calls.values():
            given = [sent["name"] for sent in call.get("parameters", ()) if sent["in"] == "path"]
            assert given == re.findall(r"{(\w+)}", path)


@pytest.mark.parametrize("debug", [True, False])
def test_it_opens_with_a_quickstart(client: Client, settings: Any, debug: bool) -> None:
    settings.DEBUG = debug
    page = client.get("/api/docs/").text
    assert page.index("data-quickstart") < page.index('id="swagger-ui"')
    assert ("demo-token" in page, "YOUR-TOKEN" in page) == (debug, not debug)
