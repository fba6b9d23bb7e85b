"""A decorator in the wrong place is refused with what to write instead."""

import re
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
from tests.integration.idempotency.urls import MixedSet, effect, steps

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]


def answered(request: HttpRequest, view: Any, user: User) -> HttpResponse:
    request.user = user
    force_authenticate(request, user)
    answer: HttpResponse = view(request)
    return answer


def create(request: Any, pk: int = 0) -> Any:
    raise NotImplementedError


async def acreate(request: Any) -> Any:
    raise NotImplementedError


@pytest.mark.parametrize("door", [drf.idempotent, drf.idempotent(), drf.idempotent(mode=Mode.PHASED)])
def test_rest_frameworks_door_refuses_what_it_cannot_key(door: Any, user: User) -> None:
    with pytest.raises(TypeError, match="acreate is async"):
        door(acreate)
    of_adrf = type("Rest", (APIView,), {"post": acreate})
    with pytest.raises(TypeError, match="acreate is async"):
        keyed_form(of_adrf.as_view())
    request = RequestFactory().post("/", headers={"Idempotency-Key": "k1"})
    with pytest.raises(
        TypeError, match=r"create was called with a WSGIRequest.*below @api_view.*views\.idempotent"
    ):
        answered(request, door(create), user)


def test_views_of_rest_framework_are_refused_when_they_are_written() -> None:
    doors: list[Any] = [drf.idempotent, views.idempotent, drf.idempotent(), views.idempotent()]
    for door in doors:
        for view in (api_view(["POST"])(create), MixedSet.as_view({"post": "create"})):
            with pytest.raises(TypeError, match=r"idempotency\.drf\.idempotent.*IdempotentMixin"):
                door(view)
        with pytest.raises(TypeError, match=r"MixedSet is a class\. Decorate the method"):
            door(MixedSet)


def test_what_belongs_behind_a_name_is_refused_without_it() -> None:
    arguments: list[Any] = [steps, Mode.PHASED, "charge"]
    for argument in arguments:
        for door in (drf.idempotent, views.idempotent):
            with pytest.raises(TypeError, match=re.escape("Write @idempotent(mode=…)")):
                door(argument)


def test_methods_made_elsewhere_are_methods() -> None:
    def behind_a_decorator(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def post(view: APIView, request: Request, *, data: Any) -> Any:
        raise NotImplementedError

    for handler in (behind_a_decorator, post):
        assert drf.idempotent(handler).idempotency_mode is Mode.ATOMIC  # type: ignore[attr-defined]


def test_an_operation_of_ninja_is_refused_when_it_is_written() -> None:
    """Its decorator knows the function only, so either order must be seen."""
    doors: list[Any] = [drf.idempotent, views.idempotent(), views.idempotent, views.idempotent(mode=steps)]
    outer, inner = NinjaAPI(urls_namespace="outer"), NinjaAPI(urls_namespace="inner")

    def written() -> Any:
        def order(request: HttpRequest, quantity: int) -> dict[str, int]:
            raise NotImplementedError

        return order

    sentence = r"order is an operation of Django Ninja\. Put idempotency\.ninja\.idempotent directly on"
    for door in doors:
        with pytest.raises(TypeError, match=sentence):
            door(outer.post("/orders")(written()))
        with pytest.raises(TypeError, match=sentence):
            inner.post("/orders")(door(written()))


BOTH = r"has both @idempotent and @not_keyed\. Remove one"


def test_a_view_is_not_keyed_and_exempt_at_once() -> None:
    for door in (views.idempotent, drf.idempotent):
        with pytest.raises(TypeError, match=BOTH):
            views.not_keyed(door(as_written_elsewhere()))
        with pytest.raises(TypeError, match=BOTH):
            door(views.not_keyed(as_written_elsewhere()))
    with pytest.raises(TypeError, match=rf"MixedSet {BOTH}"):
        views.not_keyed(MixedSet)
    wrong: Any = 5
    with pytest.raises(TypeError, match=r"not_keyed was given 5 .* Write @not_keyed above"):
        views.not_keyed(wrong)


def as_written_elsewhere() -> Any:
    def post(view: Any, request: Any) -> Any:
        raise NotImplementedError

    return post


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
def test_a_handler_may_not_end_the_transaction_by_hand(effects: Effects, user: User, statement: str) -> None:
    """Its second half would be in a transaction of its own, and a retry after a crash would do the first again."""

    @views.idempotent
    def order(request: HttpRequest) -> HttpResponse:
        effect("half")
        if not request.GET:
            with connection.cursor() as cursor:
                cursor.execute(statement)
        return HttpResponse(f"{effect('other half').pk}", status=201)

    key = {"Idempotency-Key": "k1"}
    with pytest.raises(RuntimeError, match=rf"^{statement} by hand would end .* Remove it"):
        answered(RequestFactory().post("/", headers=key), order, user)
    assert (effects(), LedgerEntry.objects.count()) == (0, 0)
    assert answered(RequestFactory().post("/?mended", headers=key), order, user).status_code == 201
    assert effects() == 2


def test_a_plain_door_that_gets_another_request_says_so() -> None:
    """What import cannot show: `@api_view` above it, or a method without `method_decorator`."""
    keyed = views.idempotent(create)
    request = RequestFactory().post("/", headers={"Idempotency-Key": "k1"})
    force_authenticate(request, User(pk=7))
    with pytest.raises(TypeError, match=r"called with a Request and .* idempotency\.drf\.idempotent"):
        api_view(["POST"])(keyed)(request)
    with pytest.raises(TypeError, match="called with a MixedSet"):
        keyed(MixedSet())


@method_decorator(views.idempotent, name="dispatch")
class Around(APIView):
    """Keyed before REST framework has authenticated."""

    permission_classes = (IsAuthenticated,)
    post = create


def test_a_plain_door_around_a_whole_view_of_rest_framework_is_refused() -> None:
    """Its callers would all be nobody, and one would get the other's answer."""
    request = RequestFactory().post("/", headers={"Idempotency-Key": "k1"})
    with pytest.raises(
        TypeError, match=r"has not authenticated yet.*Put idempotency\.drf\.idempotent on the method"
    ):
        Around.as_view()(request)


def test_a_mixin_keys_what_its_class_has_or_is_refused() -> None:
    class Orders(drf.IdempotentMixin, ViewSet):
        """Its `place` would run unkeyed."""

        place = create

    with pytest.raises(TypeError, match=r"Orders has no post, which idempotent_handlers keys\. Name its handlers"):
        Orders.as_view({"post": "place"})
    with pytest.raises(TypeError, match="Last: write IdempotentMixin before the view it inherits from"):

        class Last(ModelViewSet, drf.IdempotentMixin):
            """REST framework's `as_view` would not ask for its `post`."""

    with pytest.raises(TypeError, match=r"write idempotent_handlers = \{'create': Mode\.ATOMIC\}, a dict"):

        class Listed(drf.IdempotentMixin, ModelViewSet):
            idempotent_handlers = ["create"]


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


def test_a_method_that_changes_nothing_has_no_key() -> None:
    def get(self: APIView, request: Request) -> Response:
        raise NotImplementedError

    for door in (drf.idempotent, drf.idempotent()):
        with pytest.raises(TypeError, match=r"get answers a method that changes nothing.*Decorate post"):
            door(get)


def test_a_body_is_for_a_handler_that_takes_it() -> None:
    with pytest.raises(TypeError, match=r"create has body=, and no argument `data`"):
        drf.idempotent(body=Serializer)(create)


def test_a_decorator_that_authorises_belongs_above() -> None:
    """Else a replay would not ask it again."""
    decorators: list[Any] = [login_required, permission_required("auth.add_user"), staff_member_required]
    for authorises in decorators:
        for below in (authorises(create), require_POST(authorises(create))):
            with pytest.raises(TypeError, match=r"create: @idempotent stands above a decorator that authorises"):
                views.idempotent(below)
        assert callable(authorises(views.idempotent(create)))
