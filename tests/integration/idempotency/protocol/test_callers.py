"""The caller of a keyed call: a user, a credential, a session, or nobody."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib.auth.models import AnonymousUser, Group, User
from django.contrib.sessions.models import Session
from django.http import HttpRequest
from django.test import Client, override_settings
from django.test.client import RequestFactory
from django.urls import path
from django.utils.functional import SimpleLazyObject
from ninja import NinjaAPI
from rest_framework.test import APIClient

from idempotency import ninja
from idempotency.models import LedgerEntry
from idempotency.request.principal import principal_of
from tests.integration.idempotency import urls
from tests.integration.idempotency.conftest import Effects
from tests.integration.idempotency.urls import PLAN, effect

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

guests = NinjaAPI(urls_namespace="guests")


@guests.post("/open")
@ninja.idempotent
def open_to_guests(request: HttpRequest) -> Any:
    return {"id": effect("open").pk}


urlpatterns = [*urls.urlpatterns, path("ninja/", guests.urls)]


def post(path: str, key: str, client: Any = None, **headers: str) -> Any:
    headers["Idempotency-Key"] = key
    return (client or Client()).post(path, {}, content_type="application/json", headers=headers)


@pytest.mark.parametrize("cookies", [{}, {"sessionid": "x" * 32}], ids=["no session", "one that is gone"])
@pytest.mark.parametrize("path", ["/open/default", "/open/nobody", "/long", "/async", "/ninja/open"])
def test_a_retry_of_an_anonymous_caller_is_the_same_call_if_its_key_is_hard_to_guess(
    effects: Effects, path: str, cookies: dict[str, str]
) -> None:
    guest = Client()
    guest.cookies.load(cookies)
    weak = post(path, "order-1", guest)
    assert (weak.status_code, weak.json()["code"]) == (400, "idempotency_key_weak")
    assert "at least 22 random characters" in weak.json()["detail"]
    assert (effects(), LedgerEntry.objects.count()) == (0, 0)
    for key in (str(uuid4()), secrets.token_urlsafe(16)):
        first, again = post(path, key, guest), post(path, key, guest)
        assert (again.content, again["Idempotent-Replayed"]) == (first.content, "true")
        assert first.cookies.keys() | again.cookies.keys() <= cookies.keys()
    assert (effects(), Session.objects.count()) == (2, 0)


@pytest.mark.parametrize(
    ("path", "status", "header"),
    [
        ("/open/credentials", 401, "Bearer"),  # as the view's first authentication class says
        ("/open/default", 401, "Token"),
        ("/open/nobody", 403, None),
        ("/open/tokens", 401, "Token"),
        ("/long", 403, None),
        ("/async", 403, None),
        ("/ninja/open", 403, None),
    ],
)
def test_anonymous_callers_are_turned_away_as_the_view_does(
    effects: Effects, path: str, status: int, header: str | None
) -> None:
    with override_settings(IDEMPOTENCY={"ANONYMOUS": "refuse"}):
        for key in (str(uuid4()), "weak", ""):  # authentication comes before the key
            answer = post(path, key)
            assert (answer.status_code, answer.headers.get("WWW-Authenticate")) == (status, header)
            assert answer["Content-Type"] == "application/problem+json"
        guest = Client()
        assert guest.session.session_key
        assert post("/long", "k1", guest).status_code == 200
    assert effects() == 1


@pytest.mark.parametrize(
    ("mine", "renewed", "others"),
    [
        ("key-1", "key-1", "key-2"),
        (b"\xff\x01", b"\xff\x01", b"\xff\x02"),
        ({"sub": "ann", "exp": 1, "jti": "a"}, {"jti": "b", "exp": 2, "sub": "ann"}, {"sub": "bob", "exp": 1}),
        ({"iss": "a", "sub": "ann"}, {"iss": "a", "sub": "ann", "exp": 2}, {"iss": "b", "sub": "ann"}),
        ({"client": "ann", "n": uuid4}, None, {"client": "bob"}),
        (Group(pk=1), Group(pk=1), Group(pk=2)),
    ],
    ids=["text", "bytes", "claims", "issuers", "other claims", "a model"],
)
def test_a_credential_is_the_caller_where_there_is_no_user(
    effects: Effects, mine: Any, renewed: Any, others: Any
) -> None:
    nobody = AnonymousUser() if isinstance(mine, str) else None
    PLAN.update(user=nobody, credentials={"mine": mine, "renewed": renewed or mine, "others": others})
    first, again, other = (
        post("/open/credentials", "k1", Authorization=who) for who in ("mine", "renewed", "others")
    )
    assert (first.status_code, again.content, again["Idempotent-Replayed"]) == (201, first.content, "true")
    assert "Idempotent-Replayed" not in other
    assert effects() == 2
    assert {entry.scope.partition(":")[0] for entry in LedgerEntry.objects.all()} == {"auth"}
    assert "key-1" not in LedgerEntry.objects.values_list("scope", flat=True)[0]


@pytest.fixture
def proxy_user() -> Iterator[str]:
    """Name of a user model as a project may have it: a proxy."""
    meta = type("Meta", (), {"proxy": True, "app_label": "auth"})
    type("ProxyUser", (User,), {"__module__": __name__, "Meta": meta})
    yield "auth.ProxyUser"
    del apps.all_models["auth"]["proxyuser"]
    apps.clear_cache()


def test_users_of_two_models_are_two_callers_though_their_numbers_are_equal(user: User, proxy_user: str) -> None:
    def name_of(who: Any) -> str:
        request: Any = RequestFactory().post("/")
        request.user = SimpleLazyObject(lambda: who)
        return principal_of(request)

    partner: Any = Group(pk=user.pk)
    partner.is_authenticated = True
    assert name_of(partner) == f"auth.group:{user.pk}"
    assert name_of(user) == f"user:{user.pk}"
    with override_settings(AUTH_USER_MODEL=proxy_user):
        assert name_of(user) == f"user:{user.pk}"


# what authentication returns for each valid credential alike, or for nobody
SAME_FOR_ALL = (
    *(True, False, "True", "ok", b"valid", "anonymous", " ", AnonymousUser(), SimpleLazyObject(AnonymousUser)),
    *({"valid": True}, {"user": None, "ok": "yes"}, (AnonymousUser(), True), [], [None]),
)


@dataclass
class Claims:
    who: str
    exp: int


class Nobody:
    def __bool__(self) -> bool:
        return False


def test_a_credential_that_names_nobody_is_none_and_one_without_a_stable_text_an_error() -> None:
    """Not a new caller each time."""
    request: Any = RequestFactory().post("/")
    for credential in (None, "", {}, 0, Nobody(), *SAME_FOR_ALL):
        request.auth = credential
        assert principal_of(request) == "anonymous"
    for credential in ("alice:", "5f2c|guest"):  # the whole of a token, not a name behind a prefix
        request.auth = credential
        assert principal_of(request).startswith("auth:")
    for credential in (object(), {"who": object()}, {"who": "me", "exp": 1}, Claims("me", 1)):
        request.auth = credential
        with pytest.raises(RuntimeError, match=r"IDEMPOTENCY\['PRINCIPAL'\]"):
            principal_of(request)


def tenant_of(request: Any) -> Any:
    return PLAN["tenant"]


@pytest.fixture
def tenants() -> Any:
    with override_settings(IDEMPOTENCY={"TENANT": f"{__name__}.tenant_of"}):
        yield


@pytest.mark.usefixtures("tenants")
def test_callers_of_two_tenants_never_meet(effects: Effects, user: User) -> None:
    clients = {"user": Client(), "guest": Client(), "anonymous": Client()}
    clients["user"].force_login(user)
    assert clients["guest"].session.session_key
    for client in clients.values():
        key, seen = str(uuid4()), []
        for tenant in ("acme", "bolt", "acme"):
            PLAN["tenant"] = tenant
            seen.append(post("/long", key, client).headers.get("Idempotent-Replayed"))
        assert seen == [None, None, "true"]
    assert effects() == 6
    assert {entry.scope.split()[1] for entry in LedgerEntry.objects.all()} == {"in:acme", "in:bolt"}


@pytest.mark.usefixtures("tenants")
def test_a_token_is_good_in_its_tenant_for_who_holds_it_also_once_they_have_a_session(effects: Effects) -> None:
    PLAN["tenant"] = "acme"
    token = APIClient().post("/open/tokens").json()["token"]
    assert Session.objects.count() == 0
    guest = Client()
    assert guest.session.session_key
    use = {"Idempotency-Token": token}
    PLAN["tenant"] = "bolt"
    assert guest.post("/long", headers=use).json()["code"] == "token_unknown"
    PLAN["tenant"] = "acme"
    first, again = (who.post("/long", headers=use) for who in (Client(), guest))
    assert (first.status_code, again["Idempotent-Replayed"], effects()) == (200, "true", 1)


@pytest.mark.usefixtures("tenants")
def test_a_tenant_without_a_name_is_an_error_and_not_everybodys(effects: Effects) -> None:
    for name in (None, "", 7, "two words"):
        PLAN["tenant"] = name
        with pytest.raises(RuntimeError, match="must return a tenant's name"):
            post("/long", str(uuid4()))
    assert effects() == 0


def test_a_session_that_the_call_itself_began_is_the_same_caller(effects: Effects) -> None:
    key, guest = str(uuid4()), Client()
    first = post("/session", key, guest)
    again, lost = post("/session", key, guest), post("/session", key, Client())
    assert [answer.content for answer in (again, lost)] == [first.content] * 2
    assert ("taste" in first.cookies, "taste" in again.cookies, len(lost.cookies)) == (True, False, 0)
    assert guest.session["visits"] == 1
    assert effects() == 1
    assert "Idempotent-Replayed" not in post("/session", str(uuid4()), guest)
