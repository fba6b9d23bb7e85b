"""Coupons drawn at the same instant: nobody waits, nobody gets another's, none is lost."""

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections, transaction

from shop.errors import NoneLeft
from shop.models import Campaign, Coupon
from shop.sales import coupons
from tests.emptying import rows
from tests.integration.shop.conftest import Caller
from tests.running import until
from tests.threads import at_once

COUNT = 20
PATH = "coupons/welcome/draw"


@pytest.fixture
def campaign(transactional_db: None) -> Campaign:
    with transaction.atomic():
        coupons.open_campaign(slug="welcome", name="Welcome", count=COUNT)
    return Campaign.objects.get()


def test_thirty_users_for_twenty_coupons(campaign: Campaign) -> None:
    users = [Caller(User.objects.create_user(f"user{number}")) for number in range(30)]
    answers = at_once(*[lambda u=user: u.post(PATH, key="k") for user in users])

    assert Counter(answer.status_code for answer in answers) == {201: COUNT, 409: 10}
    assert {answer.json()["code"] for answer in answers if answer.status_code == 409} == {"none_left"}
    codes = [answer.json()["code"] for answer in answers if answer.status_code == 201]
    assert len(set(codes)) == COUNT
    assert Coupon.objects.filter(drawn_by__isnull=True).count() == 0


def test_one_user_with_eight_keys_for_the_last_one(demo: User, campaign: Campaign) -> None:
    Coupon.objects.filter(pk__in=Coupon.objects.values("pk")[1:]).delete()
    answers = at_once(*[lambda n=n: Caller(demo).post(PATH, key=f"k{n}") for n in range(8)])

    assert Counter(answer.status_code for answer in answers) == {201: 8}
    assert len({answer.json()["code"] for answer in answers}) == 1


def drawing(user: User, drawn: threading.Event, go_on: threading.Event, *, commit: bool) -> Callable[[], None]:
    def run() -> None:
        with transaction.atomic():
            coupons.draw(slug="welcome", user_id=user.pk)
            drawn.set()
            assert go_on.wait(30)
            transaction.set_rollback(not commit)

    return run


def test_a_draw_does_not_wait_for_another(demo: User, other: User, campaign: Campaign) -> None:
    """It ends while the other one's transaction is still open."""
    drawn, go_on = threading.Event(), threading.Event()

    def second() -> None:
        assert drawn.wait(30)
        with transaction.atomic():
            coupons.draw(slug="welcome", user_id=other.pk)
        go_on.set()

    at_once(drawing(demo, drawn, go_on, commit=True), second)
    assert Coupon.objects.filter(drawn_by__isnull=False).values("drawn_by").distinct().count() == 2


@pytest.mark.parametrize("commit", [True, False])
def test_the_last_one_is_waited_for(demo: User, other: User, campaign: Campaign, commit: bool) -> None:
    """`none_left` is a word for good, so it is not said because of a draw that rolls back."""
    Coupon.objects.filter(pk__in=Coupon.objects.values("pk")[1:]).delete()
    drawn, go_on = threading.Event(), threading.Event()

    def second() -> Any:
        assert drawn.wait(30)
        try:
            with transaction.atomic():
                return coupons.draw(slug="welcome", user_id=other.pk)
        except NoneLeft:
            return None

    def watch() -> None:
        """Lets the first one go on when the second one waits for it."""
        assert drawn.wait(30)
        until(someone_waits)
        go_on.set()

    _, found, _ = at_once(drawing(demo, drawn, go_on, commit=commit), second, watch)
    holder = Coupon.objects.get().drawn_by
    assert (found is None, holder) == ((True, demo) if commit else (False, other))


def someone_waits() -> bool:
    found = rows("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
    connections["default"].close()
    return bool(found)


def test_who_comes_too_late_holds_nobody_up(campaign: Campaign) -> None:
    """Locks of a first look in vain, were they kept, would make a deadlock."""
    users = [User.objects.create(username=f"late{number}") for number in range(40)]

    def draw(user: User) -> bool:
        try:
            with transaction.atomic():
                return coupons.draw(slug="welcome", user_id=user.pk).drawn_by_id == user.pk
        except NoneLeft:
            return False

    for _ in range(4):
        Coupon.objects.update(drawn_by=None, drawn_at=None)
        assert Counter(at_once(*[partial(draw, user) for user in users])) == {True: COUNT, False: 40 - COUNT}
