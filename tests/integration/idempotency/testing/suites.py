"""A project's test cases, of which each sends the same key and must be the first."""

from typing import Any

import httpx
from django.contrib.auth.models import Group, User
from django.test import LiveServerTestCase, TestCase, TransactionTestCase

from idempotency.testing import IdempotencyTestMixin, KeyedClient

USER = 7
KEY = "8e03978e-40d5-43dd-bc93-6894a57f9321"


class Sends:
    """Two tests that know nothing of each other."""

    keyed_client: KeyedClient

    def setUp(self) -> None:  # calls no `super().setUp`, as many
        User.objects.create(pk=USER, username="ann")

    def test_one(self) -> None:
        self.sends()

    def test_other(self) -> None:
        self.sends()

    def sends(self) -> None:
        self.keyed_client.force_login(User.objects.get(pk=USER))
        first = self.keyed_client.post("/orders", {"sku": "mug"}, key=KEY)
        again = self.keyed_client.again()
        assert "Idempotent-Replayed" not in first, "a test before is remembered"
        assert (again.content, again["Idempotent-Replayed"]) == (first.content, "true")
        assert Group.objects.count() == 1


class Atomic(IdempotencyTestMixin, Sends, TestCase):
    pass


class Committed(IdempotencyTestMixin, Sends, TransactionTestCase):
    pass


class Served(IdempotencyTestMixin, Sends, LiveServerTestCase):
    live_server_url: Any

    def sends(self) -> None:
        sent = {"data": {"sku": "mug"}, "headers": {"Idempotency-Key": KEY}, "trust_env": False, "timeout": 30}
        first, again = (httpx.post(f"{self.live_server_url}/orders", **sent) for _ in range(2))  # type: ignore[arg-type]
        assert first.status_code == 201, first.text
        assert "Idempotent-Replayed" not in first.headers, "a test before is remembered"
        assert again.headers["Idempotent-Replayed"] == "true"
        assert Group.objects.count() == 1
