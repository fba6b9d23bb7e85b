"""A decorator in the wrong place is refused with what to write instead."""

from functools import partial
from typing import Any

import pytest
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.decorators import login_required, permission_required
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import path
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_POST
from ninja import NinjaAPI
from rest_framework.decorators import api_view
from rest_framework.generics import GenericAPIView
from rest_framework.mixins import CreateModelMixin
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.test import force_authenticate
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet, ModelViewSet, ViewSet

from idempotency import drf, views
from idempotency.middleware import keyed_form
from idempotency.models import LedgerEntry
from idempotency.modes import Mode
from tests.integration.idempotency.conftest import Effects
from tests.integration.idempotency.protocol.doors import hiding
from tests.integration.idempotency.protocol.doors import plain as function
from tests.integration.idempotency.urls import MixedSet, effect, steps

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]


def create(request: Any, pk: int = 0) -> Any:
    raise NotImplementedError


async def acreate(request: Any) -> Any:
    raise NotImplementedError


def get(self: APIView, request: Request) -> Response:
    raise NotImplementedError


def as_written_elsewhere() -> Any:
    def post(view: Any, request: Any) -> Any:
        raise NotImplementedError

    return post


def operation() -> Any:
    def order(request: HttpRequest, quantity: int) -> dict[str, int]:
        raise NotImplementedError

    return order


def keyed_request(user: User | None = None) -> Any:
    request = RequestFactory().post("/", headers={"Idempotency-Key": "k1"})
    force_authenticate(request, user)
    return request


class Unnamed(drf.IdempotentMixin, ViewSet):
    """Its `place` would run unkeyed."""

    place = create


@method_decorator(views.idempotent, name="dispatch")
class Around(APIView):
    """Keyed before REST framework has authenticated: its callers would all be nobody."""

    permission_classes = (IsAuthenticated,)
    post = create


REST_DOORS = [drf.idempotent, drf.idempotent(), drf.idempotent(mode=Mode.PHASED)]
DOORS = [*REST_DOORS, views.idempotent, views.idempotent()]
AUTHORISES = [login_required, permission_required("auth.add_user"), staff_member_required]
ABOVE = "create: @idempotent stands above a decorator that authorises"  # else a replay would not ask it again
OF_NINJA = [drf.idempotent, views.idempotent(), views.idempotent, views.idempotent(mode=steps)]
OPERATION = r"order is an operation of Django Ninja\. Put idempotency\.ninja\.idempotent directly on"
BOTH = r"has both @idempotent and @not_keyed\. Remove one"


@pytest.mark.parametrize(
    ("doors", "wrong", "sentence"),
    [
        (REST_DOORS, lambda door: door(acreate), "acreate is async"),
        (REST_DOORS, lambda door: door(get), r"get answers a method that changes nothing.*Decorate post"),
        (REST_DOORS, lambda door: door(create)(keyed_request()), r"with a WSGIRequest.*below @api_view.*views\."),
        (DOORS, lambda door: door(api_view(["POST"])(create)), r"idempotency\.drf\.idempotent.*IdempotentMixin"),
        (DOORS, lambda door: door(MixedSet.as_view({"post": "create"})), r"drf\.idempotent.*IdempotentMixin"),
        (DOORS, lambda door: door(MixedSet), r"MixedSet is a class\. Decorate the method"),
        (DOORS, lambda door: views.not_keyed(door(as_written_elsewhere())), BOTH),
        (DOORS, lambda door: door(views.not_keyed(as_written_elsewhere())), BOTH),
        (DOORS[::3], lambda door: door(Mode.PHASED), r"Write @idempotent\(mode=…\)"),
        (DOORS[::3], lambda door: door("charge"), r"Write @idempotent\(mode=…\)"),
        # what import cannot show: `@api_view` above a plain door, or a method without `method_decorator`
        (
            DOORS[3:],
            lambda door: api_view(["POST"])(door(create))(keyed_request(User(pk=7))),
            r"a Request and .* idempotency\.drf",
        ),
        (DOORS[3:], lambda door: door(create)(MixedSet()), "called with a MixedSet"),
        (
            [keyed_form],
            lambda door: door(type("Rest", (APIView,), {"post": acreate}).as_view()),
            "acreate is async",
        ),
        ([views.not_keyed], lambda door: door(MixedSet), rf"MixedSet {BOTH}"),
        ([views.not_keyed], lambda door: door(5), r"not_keyed was given 5 .* Write @not_keyed above"),
        (
            [drf.idempotent(body=Serializer)],
            lambda door: door(create),
            r"create has body=, and no argument `data`",
        ),
        (
            [Unnamed],
            lambda door: door.as_view({"post": "place"}),
            r"Unnamed has no post, which idempotent_handlers keys",
        ),
        (
            [(ModelViewSet, drf.IdempotentMixin)],  # REST framework's `as_view` would not ask for its `post`
            lambda bases: type("Last", bases, {}),
            "Last: write IdempotentMixin before the view it inherits from",
        ),
        (
            [(drf.IdempotentMixin, ModelViewSet)],
            lambda bases: type("Listed", bases, {"idempotent_handlers": ["create"]}),
            r"write idempotent_handlers = \{'create': Mode\.ATOMIC\}, a dict",
        ),
        ([Around], lambda door: door.as_view()(keyed_request()), r"not authenticated yet.*Put idempotency\.drf\."),
        (AUTHORISES, lambda authorises: views.idempotent(authorises(create)), ABOVE),
        (AUTHORISES, lambda authorises: views.idempotent(require_POST(authorises(create))), ABOVE),
        # the decorator of Ninja knows the function only, so either order must be seen
        (OF_NINJA, lambda door: door(NinjaAPI().post("/orders")(operation())), OPERATION),
        (OF_NINJA, lambda door: NinjaAPI().post("/orders")(door(operation())), OPERATION),
        # around what cannot be copied a replay would be given without asking for permission
        ([keyed_form], lambda door: door(hiding(function)), "plain is inside a decorator that"),
    ],
)
def test_a_wrong_use_is_refused_with_what_to_write(doors: list[Any], wrong: Any, sentence: str) -> None:
    for door in doors:
        with pytest.raises(TypeError, match=sentence):
            wrong(door)


@drf.idempotent
def plain(request: Any) -> HttpResponse:
    return HttpResponse(f"{effect('function').pk}", status=201)


urlpatterns = [path("plain", plain)]


@pytest.mark.urls(__name__)
def test_what_import_cannot_show_is_refused_by_check_and_by_a_server_that_runs_none(
    effects: Effects,
) -> None:
    """`@api_view` above may make a view of REST framework; gunicorn runs no checks."""
    with pytest.raises(SystemCheckError, match=r"E014\)"):
        call_command("check")
    server = Client(raise_request_exception=False)
    for key in ({}, {"Idempotency-Key": "k1"}):
        for _ in range(2):
            assert server.post("/plain", headers=key).status_code == 500
    assert (effects(), LedgerEntry.objects.count()) == (0, 0)


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
def test_a_handler_may_not_end_the_transaction_by_hand(effects: Effects, statement: str) -> None:
    """After a crash a retry would do its first half again."""

    @views.idempotent(principal=lambda request: "user:1")
    def order(request: HttpRequest) -> HttpResponse:
        effect("half")
        if not request.GET:
            with connection.cursor() as cursor:
                cursor.execute(statement)
        return HttpResponse(f"{effect('other half').pk}", status=201)

    post = partial(RequestFactory().post, headers={"Idempotency-Key": "k1"})
    with pytest.raises(RuntimeError, match=rf"^{statement} by hand would end .* Remove it"):
        order(post("/"))
    assert (effects(), LedgerEntry.objects.count()) == (0, 0)
    assert order(post("/?mended")).status_code == 201
    assert effects() == 2


def test_a_mixin_keys_what_its_last_class_names() -> None:
    class Wrapping:
        """A mixin that asks for the next `as_view`."""

        @classmethod
        def as_view(cls, *args: Any, **kwargs: Any) -> Any:
            return super().as_view(*args, **kwargs)  # type: ignore[misc]

    class AnyOrders(Wrapping, drf.IdempotentMixin, CreateModelMixin):
        """A base of views."""

        pay = create

    class Posted(AnyOrders, GenericAPIView[Any]):
        post = create

    class Base(AnyOrders, GenericViewSet[Any]):
        """A base of ViewSets."""

    class Paid(Base):
        idempotent_handlers = {"pay": Mode.ATOMIC}

    class Created(Base):
        """Its `create` is keyed."""

    Posted.as_view()
    for ordered in (Paid, Created):
        ordered.as_view({"post": "create"})
    keyed = {
        (each.__name__, name)
        for each in (Posted, Paid, Created)
        for name in ("post", "create", "pay")
        if hasattr(getattr(each, name, None), "idempotency_mode")
    }
    assert keyed == {("Posted", "post"), ("Paid", "pay"), ("Created", "create")}
