"""A caller of the small API in urls.py, and what it left behind."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db.models.functions import Now
from django.http import HttpResponse
from rest_framework.test import APIClient

from idempotency import ledger
from idempotency.models import LedgerEntry
from tests.conftest import guarded_folder
from tests.integration.idempotency import urls
from tests.integration.idempotency.forms import ALONE, TEMPLATE, use_templates
from tests.zookeeper_server import ZooKeeperServer

Effects = Callable[[], int]


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeperServer]:
    with guarded_folder() as (guardian, folder):
        server = ZooKeeperServer(guardian, folder / "zookeeper")
        server.start()
        yield server


@pytest.fixture(autouse=True)
def _plan() -> None:
    urls.PLAN.clear()
    urls.STEPS.clear()
    urls.STEPS["calls"] = []


@pytest.fixture
def the_dead_drop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "drop_lease", lambda run: None)


@pytest.fixture(autouse=True)
def _djangos_sessions(settings: Any) -> None:
    """Sessions as a project has them; the shop's know its guests, and its forms have a rate."""
    shops = {"shop.platform.sessions.GuestsMiddleware", "shop.web.rates.FormRateMiddleware"}
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if name not in shops]
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.db"


@pytest.fixture
def plain_project(settings: Any) -> None:
    """Middleware of a project with pages, and the templates of `forms`."""
    settings.MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.locale.LocaleMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "idempotency.middleware.IdempotencyMiddleware",
    ]
    use_templates(settings, {"order.html": TEMPLATE, "alone.html": ALONE})


@pytest.fixture
def without_redis(settings: Any) -> None:
    settings.IDEMPOTENCY = {"REDIS": None}


@pytest.fixture
def user(transactional_db: None) -> User:
    return User.objects.create_user("ann")


class Caller:
    """One logged-in user's client; `post` sends JSON under a key."""

    def __init__(self, user: User) -> None:
        self.client = APIClient(raise_request_exception=False)
        self.client.force_authenticate(user)

    def post(
        self, path: str = "/things", key: str | None = "k1", body: Any = None, **headers: str
    ) -> HttpResponse:
        if key is not None:
            headers["Idempotency-Key"] = key
        return self.client.post(path, {"name": "a"} if body is None else body, format="json", headers=headers)


def end_the_lease() -> None:
    """End that of every entry, as time does."""
    LedgerEntry.objects.update(lease_until=Now() - timedelta(minutes=5))


@pytest.fixture
def caller(user: User) -> Caller:
    return Caller(user)


@pytest.fixture
def effects(transactional_db: None) -> Effects:
    """How many effects are committed."""
    return Group.objects.count
