"""Between two tests of a project nothing is remembered, and its clients send keys."""

import subprocess
import sys
import unittest
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connections
from django.http import HttpResponse
from django.test import AsyncClient, override_settings
from rest_framework.test import APIClient

from idempotency import ledger
from idempotency.redis.fastpath import breaker
from idempotency.testing import KeyedClient, KeyedRequests, forget
from idempotency.testing.fixtures import _nothing_remembered, keyed_client  # noqa: F401  as a plugin brings them
from tests.integration.idempotency.testing import suites

pytestmark = pytest.mark.urls("tests.integration.idempotency.testing.views")


def outcome(case: type[unittest.TestCase]) -> tuple[int, list[str]]:
    """How many of a project's tests ran, and the last line of each that failed."""
    found = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(found)
    return found.testsRun, [text.strip().splitlines()[-1] for _, text in [*found.failures, *found.errors]]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("case", [suites.Atomic, suites.Committed, suites.Served])
def test_each_test_of_a_case_is_the_first(case: type[unittest.TestCase]) -> None:
    assert outcome(case) == (2, [])


@pytest.mark.django_db
@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_of_pytest_is_the_first(keyed_client: KeyedClient, turn: int) -> None:  # noqa: F811
    """By the fixture, which no test here names; the rows are rolled back."""
    keyed_client.force_login(User.objects.create(pk=suites.USER))
    assert "Idempotent-Replayed" not in keyed_client.post("/orders", {"sku": "mug"}, key=suites.KEY)
    assert keyed_client.again()["Idempotent-Replayed"] == "true"


def test_forgetting_asks_no_database_and_tries_redis_again() -> None:
    """This test may use none."""
    breaker.failed(open_seconds=60)
    before = ledger.redis_prefix()
    forget()
    assert ledger.redis_prefix() != before
    assert breaker.is_closed


class KeyedAPIClient(KeyedRequests, APIClient):
    """As the page says."""


@pytest.mark.django_db
class TestKeyedClients:
    @pytest.fixture(params=[KeyedClient, KeyedAPIClient])
    def client(self, request: pytest.FixtureRequest) -> Any:
        client = request.param()
        client.force_login(User.objects.create(username="ann"))
        return client

    def order(self, client: Any, **options: Any) -> HttpResponse:
        answer: HttpResponse = client.post(
            "/orders", "sku=mug", content_type="application/x-www-form-urlencoded", **options
        )
        return answer

    def test_each_request_is_a_call_of_its_own_and_again_the_same(self, client: Any) -> None:
        self.order(client)
        key = client.last_key
        first = self.order(client, headers={"X-Other": "1"})
        assert "Idempotent-Replayed" not in first
        assert client.last_key != key
        client.get("/orders")
        for _ in range(2):
            again = client.again()
            assert again.content == first.content
            sent = again.wsgi_request.headers
            assert (sent["X-Other"], sent["Idempotency-Key"]) == ("1", client.last_key)

    @pytest.mark.parametrize("given", [{"key": "k1"}, {"headers": {"idempotency-key": "k1"}}])
    def test_a_key_is_given_in_either_way_or_left_out(self, client: Any, given: dict[str, Any]) -> None:
        for more, key in (({}, "k1"), ({}, "k1"), ({"key": "k2"}, "k2")):
            answer = self.order(client, **given | more)
            assert (client.last_key, answer.wsgi_request.headers["Idempotency-Key"]) == (key, key)
        assert self.order(client, **given | {"key": None}).status_code == 400
        assert client.again().status_code == 400

    def test_a_safe_request_has_no_key_and_others_have_it_in_the_header_of_the_settings(self, client: Any) -> None:
        assert "Idempotency-Key" not in client.get("/orders", key="k1").wsgi_request.headers
        assert client.last_key is None
        with pytest.raises(RuntimeError, match="has sent no unsafe request"):
            client.again()
        with override_settings(IDEMPOTENCY={"HEADER": "X-Once"}):
            assert self.order(client).status_code == 201


class KeyedAsyncClient(KeyedRequests, AsyncClient):
    """The mixin's other client."""


@pytest.mark.django_db(transaction=True)
async def test_the_async_client_too() -> None:
    client = KeyedAsyncClient()
    first = await client.post("/orders", {"sku": "mug"})
    again = await client.again()
    assert (again.content, again["Idempotent-Replayed"]) == (first.content, "true")
    await sync_to_async(connections.close_all)()


def test_the_mixin_works_without_pytest() -> None:
    code = """
import sys
sys.modules["pytest"] = None
import django
from django.conf import settings
settings.configure(INSTALLED_APPS=["idempotency"], DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}})
django.setup()
from idempotency.testing import IdempotencyTestMixin, KeyedClient, KeyedRequests, assert_once, forget
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
