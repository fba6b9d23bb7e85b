"""The rates of wrong passwords and forms, counted first and over all processes."""

from typing import Any

import pytest
from django.contrib.auth import hashers
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client

from idempotency.models import LedgerEntry
from shop.models import Order, Product
from shop.web import rates
from tests.integration.payments.channels.conftest import away
from tests.integration.shop.web.test_basket_pages import guest, held, put
from tests.integration.shop.web.test_pages import csrf_of, form_of, log_in
from tests.threads import at_once

__all__ = ["away"]

LOGINS = ["/accounts/login/", "/admin/login/"]


@pytest.fixture(autouse=True)
def _long_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than any machine takes for a test; and no count of another test."""
    monkeypatch.setattr(rates, "FORMS_SECONDS", 3600.0)
    monkeypatch.setattr(rates, "GUESSES_SECONDS", 3600.0)
    monkeypatch.setattr(rates, "_here", rates.OneProcess())


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passwords that were hashed."""
    found: list[str] = []
    hasher = type(hashers.get_hasher())
    encode = hasher.encode

    def heard(self: Any, password: str, salt: str) -> str:
        found.append(password)
        return str(encode(self, password, salt))

    monkeypatch.setattr(hasher, "encode", heard)
    return found


@pytest.fixture
def boss(transactional_db: None) -> User:
    return User.objects.create_superuser("boss", password="right")


def statuses(address: str, *names: str, password: str = "wrong", **sent: Any) -> list[int]:
    return [log_in(guest(), address=address, name=name, password=password, **sent).status_code for name in names]


@pytest.mark.parametrize("address", LOGINS)
def test_a_name_is_guessed_at_so_often(boss: User, settings: Any, hashed: list[str], address: str) -> None:
    settings.LOGIN_FAILURES_PER_NAME = settings.LOGIN_FAILURES_PER_ADDRESS = 4
    assert statuses(address, *["boss"] * 5, password="right") == [302] * 5
    assert statuses(address, "boss", "BOSS", " boss\u3000") == [200] * 3
    assert statuses(address, "boss", password="right") == [302], "which does not count"
    assert statuses(address, "boss") == [200]
    hashed.clear()
    answer = log_in(guest(), address=address, name="boss", password="right")
    assert (answer.status_code, hashed) == (429, [])
    assert 3500 < int(answer["Retry-After"]) <= 3600
    assert b"Too many attempts" in answer.content
    assert statuses(address, "someone else", REMOTE_ADDR="198.51.100.1") == [200]


def test_both_logins_count_together_and_every_address(boss: User, settings: Any) -> None:
    settings.LOGIN_FAILURES_PER_NAME = 2
    assert statuses(LOGINS[0], "boss", REMOTE_ADDR="198.51.100.1") == [200]
    assert statuses(LOGINS[1], "boss", REMOTE_ADDR="198.51.100.2") == [200]
    assert [statuses(address, "boss", REMOTE_ADDR="198.51.100.3") for address in LOGINS] == [[429], [429]]


@pytest.mark.parametrize("address", LOGINS)
def test_an_address_guesses_so_often(boss: User, settings: Any, hashed: list[str], address: str) -> None:
    settings.LOGIN_FAILURES_PER_ADDRESS = 3
    settings.LOGIN_FAILURES_PER_NAME = 4
    names = [f"name {number}" for number in range(5)]
    assert statuses(address, *names, REMOTE_ADDR="2001:db8::1") == [200] * 3 + [429] * 2
    hashed.clear()
    assert statuses(address, "boss", "boss", REMOTE_ADDR="2001:db8::2:1") == [429] * 2, "of the same line"
    assert hashed == []
    assert statuses(address, *["boss"] * 3, REMOTE_ADDR="2001:db8:0:1::1") == [200] * 3, "took none of the name's"
    assert statuses(address, "boss", password="right", REMOTE_ADDR="198.51.100.1") == [302]


@pytest.mark.parametrize("address", LOGINS)
def test_a_member_guesses_no_more_often(boss: User, demo: User, settings: Any, address: str) -> None:
    """Who is logged in is led on by the shop's page, and may try another name at the admin's."""
    settings.LOGIN_FAILURES_PER_NAME = 2
    assert statuses(LOGINS[0], "boss") == [200]
    member = guest()
    log_in(member)
    body = {"csrfmiddlewaretoken": csrf_of(member.get("/")), "username": "boss", "password": "wrong"}
    for _ in range(4):
        member.post(address, body)
    assert statuses(LOGINS[0], "boss")[0] in {200, 429}
    assert statuses(LOGINS[0], "boss") == [429]


def test_guesses_at_the_same_moment_count_as_well(boss: User, settings: Any) -> None:
    settings.LOGIN_FAILURES_PER_NAME = 3
    said = at_once(*[lambda: statuses("/accounts/login/", "boss")[0]] * 10)
    assert sorted(said) == [200] * 3 + [429] * 7


def test_without_redis_a_process_counts_by_itself(boss: User, mug: Product, settings: Any, away: None) -> None:
    settings.LOGIN_FAILURES_PER_NAME = 3
    assert statuses(LOGINS[0], *["boss"] * 2, password="right") == [302] * 2
    assert statuses(LOGINS[0], *["boss"] * 5) == [200] * 3 + [429] * 2
    assert statuses(LOGINS[0], "someone else") == [200]
    settings.FORM_POSTS_PER_MINUTE = 2
    client = Client(enforce_csrf_checks=True, REMOTE_ADDR="198.51.100.7")
    assert [put(client, "mug", 1).status_code for _ in range(4)] == [302, 302, 429, 429]
    assert held(client) == {"mug": 2}


def test_a_process_counts_a_bounded_number_of_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "COUNTED_HERE_MAX", 2)
    here = rates.OneProcess()
    first, *others = [rates.Rate(f"guest {number}", 1, 3600.0) for number in range(3)]
    assert [here.take(rate) for rate in (first, others[0])] == [0, 0]
    assert here.take(first) > 3599
    assert here.take(others[1]) == 0, "which others[0], longest ago, is forgotten for"
    assert here.take(first) > 3599
    assert here.take(others[0]) == 0
    assert here.take(rates.Rate("guest 0", 2, 0.0)) == 0, "an interval that is over"


def test_forms_of_a_member_with_keys_of_their_own(shopper: Client, mug: Product, settings: Any) -> None:
    settings.FORM_POSTS_PER_MINUTE = 3
    fields = form_of(shopper.get("/products/mug"), "/products/mug/buy")
    del fields["idempotency_token"]
    answers = [
        shopper.post("/products/mug/buy", fields, headers={"Idempotency-Key": f"mine-{number}"})
        for number in range(5)
    ]
    assert [answer.status_code for answer in answers] == [302] * 3 + [429] * 2
    assert 3500 < int(answers[-1]["Retry-After"]) <= 3600
    assert (Order.objects.count(), LedgerEntry.objects.count()) == (3, 3)
    assert shopper.get("/products/mug").status_code == 200


def test_guests_of_one_address_and_no_others(mug: Product, settings: Any, demo: User) -> None:
    settings.FORM_POSTS_PER_MINUTE = 3
    answers = [put(guest(), "mug", 1).status_code for _ in range(5)]
    assert (answers, Session.objects.count()) == ([302] * 3 + [429] * 2, 3)
    elsewhere = Client(enforce_csrf_checks=True, REMOTE_ADDR="198.51.100.7")
    assert put(elsewhere, "mug", 1).status_code == 302
    member = guest()
    member.force_login(demo)
    assert put(member, "mug", 1).status_code == 302, "counted by who they are"


@pytest.mark.parametrize(
    "address", ["/basket/change", "/i18n/setlang/", "/accounts/logout/", "/admin/auth/user/add/", "/nowhere"]
)
def test_every_page_counts_before_anything_else(db: None, settings: Any, address: str) -> None:
    settings.FORM_POSTS_PER_MINUTE = 2
    asked = [guest().generic(method, address).status_code for method in ("POST", "PUT", "DELETE", "GET", "HEAD")]
    assert (429 in asked[:2], asked[2], 429 in asked[3:]) == (False, 429, False)
