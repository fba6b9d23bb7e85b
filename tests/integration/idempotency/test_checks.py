"""System checks that need addresses or the database."""

import re
from functools import update_wrapper
from inspect import iscoroutinefunction
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.apps import apps
from django.contrib.auth.mixins import LoginRequiredMixin, PermissionRequiredMixin, UserPassesTestMixin
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import include, path, re_path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.generic import FormView
from ninja import NinjaAPI
from rest_framework.decorators import api_view
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ModelViewSet, ViewSet

from idempotency import drf
from idempotency.checks.callers import check_anonymous_callers, check_callers
from idempotency.checks.ledger import check_constraint, check_server_log
from idempotency.checks.methods import check_keyed_methods
from idempotency.checks.settings import MIDDLEWARE, check_settings, check_tenants
from idempotency.checks.views import check_atomic_requests, check_keyed_views, check_middleware, check_prefixes
from idempotency.ledger.claiming import UNIQUE
from idempotency.modes import ATOMIC
from idempotency.ninja import idempotent as keyed_operation
from idempotency.views import idempotent, not_keyed
from tests.integration.idempotency.urls import Things

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]


def unreached(self: Any, request: Any) -> HttpResponse:
    """Answer a call that no check makes."""
    raise NotImplementedError


class RestOfOthers(APIView):
    permission_classes = (AllowAny,)
    post = unreached


def test_keyed_drf_methods_inside_atomic_requests_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_atomic_requests(None) == []
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    messages = check_atomic_requests(None)
    named = {message.msg.split()[0].rsplit(".", 1)[1] for message in messages}
    assert named == {"Things", "HeldThings", "PhasedThings", "Steps", "Open"}  # not Mixed, not the plain views
    assert {message.id for message in messages} == {"idempotency.E005"}
    assert all("IdempotentMixin" in str(message.hint) for message in messages)


def warnings_of_lists() -> dict[str, set[str]]:
    """The last part of each view's name, by id."""
    found: dict[str, set[str]] = {}
    for message in [*check_callers(None), *check_anonymous_callers(None)]:
        (name,) = re.findall(r"tests\.integration\.idempotency\.urls\.(\w+)", message.msg)
        found.setdefault(str(message.id), set()).add(name)
    return found


def test_views_that_anonymous_callers_may_use_are_named_before_a_deployment() -> None:
    ids = [{each.id for each in run_checks(include_deployment_checks=deploy)} for deploy in (False, True)]
    assert ["idempotency.W003" in found for found in ids] == [False, True]
    assert warnings_of_lists() == {"idempotency.W003": {"Open"}}
    with override_settings(IDEMPOTENCY={"ANONYMOUS": "refuse"}):
        assert warnings_of_lists() == {}
    with override_settings(IDEMPOTENCY={"PRINCIPAL": "tests.integration.idempotency.urls.everyone"}):
        assert warnings_of_lists() == {}


def test_views_without_any_caller_are_named_also_beside_rest_framework() -> None:
    with override_settings(MIDDLEWARE=[MIDDLEWARE]):
        found = warnings_of_lists()
    assert {"plain", "asynchronous", "Open"} <= found["idempotency.W001"]
    assert not {"Things", "Mixed", "MixedSet"} & found["idempotency.W001"]


class TasksAlone:
    urlpatterns = [path("own", APIView.as_view())]


class OneKeyed:
    urlpatterns = [*TasksAlone.urlpatterns, path("keyed", lambda request: None), path("things", Things.as_view())]


@pytest.mark.parametrize(
    ("urls", "raw", "fault"),
    [
        (TasksAlone, {}, None),
        (None, {}, None),
        (OneKeyed, {}, "problems and outages in tests.integration.idempotency.urls.Things are answered by 500"),
        (OneKeyed, {"ENABLED": False}, None),
        (TasksAlone, {"KEYED": ["/api/"]}, "IDEMPOTENCY['KEYED'] = ['/api/'] keys nothing"),
    ],
)
def test_the_middleware_is_asked_for_where_a_view_is_keyed(urls: Any, raw: Any, fault: str | None) -> None:
    with override_settings(MIDDLEWARE=[], IDEMPOTENCY=raw, ROOT_URLCONF=urls):
        found = [(message.id, message.msg) for message in check_middleware(None)]
        assert "idempotency.E002" not in {message.id for message in check_settings(None)}
    missing = f"MIDDLEWARE lacks {MIDDLEWARE!r}; add it as the last one. Without it {fault}."
    assert found == ([] if fault is None else [("idempotency.E002", missing)])
    assert check_middleware(None) == []


@method_decorator(idempotent, name="post")
@not_keyed
class Both(View):
    post = unreached


ninja = NinjaAPI(urls_namespace="checked")


@ninja.post("/orders")
def order(request: HttpRequest) -> None:
    raise NotImplementedError


class Wrapper:
    """A decorator that is no function: whether it authorises nobody can see."""

    def __init__(self, view: Any) -> None:
        self.view = view
        update_wrapper(self, view)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        raise NotImplementedError


urlpatterns = [
    path("v2/wrapped", Wrapper(RestOfOthers.as_view(permission_classes=[IsAuthenticated]))),
    path("v1/both", Both.as_view()),
    path("v1/ninja/", ninja.urls),
    path("v1/open", APIView.as_view(permission_classes=[AllowAny])),
    path("v1/posts", RestOfOthers.as_view()),
]


@pytest.mark.urls(__name__)
@pytest.mark.parametrize(
    ("keyed", "errors", "callers"),
    [
        ("marked", {"E011"}, set()),
        ("unsafe", {"E011", "E012"}, {"W003"}),
        (["/v1/ninja/"], {"E011", "E012"}, set()),
        (["/v1/posts"], {"E011"}, {"W003"}),
        (["/v2/"], {"E011", "E012"}, set()),
    ],
)
def test_what_the_setting_keyed_names_can_be_keyed(keyed: Any, errors: set[str], callers: set[str]) -> None:
    with override_settings(IDEMPOTENCY={"KEYED": keyed}):
        found, warned = check_keyed_views(None), check_anonymous_callers(None)
    assert {str(message.id).partition(".")[2] for message in found} == errors
    assert all("IDEMPOTENCY['KEYED']" in message.msg for message in found)
    assert {str(message.id).partition(".")[2] for message in warned} == callers
    assert all("RestOfOthers" in message.msg for message in warned)


class Addresses:
    """Fixed, with a converter, with regular expressions, and of an include."""

    urlpatterns = [
        path("v1/posts", RestOfOthers.as_view()),
        path("shops/<slug:shop>/orders", RestOfOthers.as_view()),
        re_path(r"^old/(?P<year>\d+)/orders$", RestOfOthers.as_view()),
        path("api/", include([path("", include([path("refunds", RestOfOthers.as_view())]))])),
    ]


def test_a_prefix_that_keys_nothing_is_named() -> None:
    right = ("/v1/posts", "/api/refunds", "/shops/", "/shops/north/", "/old/2024/", "/")
    wrong = ("/v2/", "/v1/posts/", "/api/refund/", "/shop/", "/older/")
    with override_settings(ROOT_URLCONF=Addresses, IDEMPOTENCY={"KEYED": ["/v1/", *right, *wrong]}):
        found = check_prefixes(None)
    assert {message.id for message in found} == {"idempotency.W007"}
    assert [repr(prefix) in message.msg for prefix, message in zip(wrong, found, strict=True)] == [True] * 5


@idempotent(lifetime=90_000)
def long_lived(request: HttpRequest) -> HttpResponse:
    raise NotImplementedError


@drf.idempotent
def at_the_wrong_door(request: Any) -> HttpResponse:
    raise NotImplementedError


@api_view(["POST"])
@idempotent
def below_api_view(request: Any) -> HttpResponse:
    raise NotImplementedError


class Notes(ModelViewSet):
    """Keys nothing, without the mixin."""

    idempotent_handlers = {"create": ATOMIC}


@method_decorator(idempotent, name="dispatch")
class Guarded(PermissionRequiredMixin, View):
    """Asks for its permission inside the keyed `dispatch`."""


@method_decorator(idempotent, name="post")
class GuardedOutside(PermissionRequiredMixin, View):
    post = unreached


class GuardedAlone(UserPassesTestMixin, View):
    """Keyed by the decorator of functions, around all of it."""


class WithoutMethodDecorator(View):
    post = idempotent(unreached)


@method_decorator(idempotent, name="form_valid")
class OnAHook(FormView):
    """Its posts run unkeyed."""


@method_decorator(idempotent, name="get")
class OnGet(View):
    get = unreached


class OnAHelper(View):
    """Keyed inside `post`."""

    def post(self, request: HttpRequest) -> HttpResponse:
        return self.order(request)

    order = method_decorator(idempotent)(unreached)


class OnBoth(View):
    """Keyed where it is a post."""

    post = method_decorator(idempotent)(unreached)

    get = post


class OnAnAction(ViewSet):
    """Keyed below a decorator that hides the arguments, or with another name for the request."""

    @drf.idempotent
    def create(*given: Any) -> Response:
        raise NotImplementedError

    @drf.idempotent
    def cancel(self, _request: Request, pk: str) -> Response:
        raise NotImplementedError

    @drf.idempotent
    def pay(self, _: Request) -> Response:
        raise NotImplementedError


operations = NinjaAPI(urls_namespace="safe operations")


@operations.get("/")
@keyed_operation
def read(request: HttpRequest) -> None:
    raise NotImplementedError


@operations.post("/")
@keyed_operation
def write(request: HttpRequest) -> None:
    raise NotImplementedError


class Wrong:
    urlpatterns = [
        path("hook", OnAHook.as_view()),
        path("get", OnGet.as_view()),
        path("helper", OnAHelper.as_view()),
        path("both", OnBoth.as_view()),
        path("action", OnAnAction.as_view({"post": "create", "put": "pay"})),
        path("method", WithoutMethodDecorator.as_view()),
        path("guarded", Guarded.as_view()),
        path("guarded-outside", GuardedOutside.as_view()),
        path("guarded-alone", idempotent(GuardedAlone.as_view())),
        path("notes", Notes.as_view({"post": "create"})),
        path("lifetime", long_lived),
        path("safe-and-other", api_view(["GET", "POST"])(drf.idempotent(lambda request: None))),
        path("operations/", operations.urls),
        path("plain", at_the_wrong_door),
        path("rest", below_api_view),
    ]


class OfTenants:
    """As django-tenants' router, for an app of tenants only."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return False


@override_settings(TENANT_APPS=["idempotency"], SHARED_APPS=["notes"], DATABASE_ROUTERS=[f"{__name__}.OfTenants"])
def test_the_public_schema_has_a_ledger_too() -> None:
    """A router of ours would not help: what the lists say comes first."""
    found = [message for message in run_checks() if message.id in {"idempotency.E009", "idempotency.E015"}]
    (message,) = found
    assert message.msg == "SHARED_APPS lacks 'idempotency', so the public schema has no ledger."


@pytest.mark.parametrize(("tenant", "found"), [(None, ["idempotency.E009"]), ("os.getcwd", [])])
def test_tenants_that_names_in_redis_do_not_know_are_named_by_a_function(
    monkeypatch: pytest.MonkeyPatch, tenant: str | None, found: list[str]
) -> None:
    monkeypatch.setitem(connections.settings["default"], "ENGINE", "django_pgschemas.postgresql")
    with override_settings(IDEMPOTENCY={"TENANT": tenant}):
        assert [message.id for message in check_tenants(None)] == found


def test_options_and_doors_that_cannot_be_honoured_are_named() -> None:
    with override_settings(ROOT_URLCONF=Wrong):
        found = {(str(each.id).partition(".")[2], each.msg) for each in check_keyed_views(None)}
        with override_settings(IDEMPOTENCY={"BODY_SECONDS": 90_000}):
            assert "idempotency.E013" not in {message.id for message in check_keyed_views(None)}
    expected = [
        ("E013", "long_lived has lifetime=90000, and answers are stored for 86400 s"),
        (
            "E014",
            "WithoutMethodDecorator is under idempotency.views.idempotent.*@method_decorator.idempotent. above",
        ),
        ("E014", "at_the_wrong_door is under idempotency.drf.idempotent.*Write idempotency.views.idempotent"),
        ("E014", "below_api_view is under idempotency.views.idempotent.*Write idempotency.drf.idempotent"),
        ("E016", "Notes has idempotent_handlers, which keys nothing without IdempotentMixin. Let it inherit"),
        ("E019", "Guarded has @idempotent on dispatch or as_view.., around PermissionRequiredMixin"),
        ("E019", "GuardedAlone has @idempotent on dispatch or as_view.., around UserPassesTestMixin"),
    ]
    for code, sentence in expected:
        assert [msg for each, msg in found if each == code and re.search(sentence, msg)], sentence
    assert len(found) == len(expected)


def test_a_keyed_method_that_no_call_reaches_is_an_error() -> None:
    with override_settings(ROOT_URLCONF=Wrong):
        found = check_keyed_methods(None)
    assert {message.id for message in found} == {"idempotency.E022"}
    named = [re.findall(r"\.(\w+) has @idempotent on (\w+), where it keys nothing", each.msg) for each in found]
    assert named == [
        [("OnAHook", "form_valid")],
        [("OnGet", "get")],
        [("read", "get")],
    ]
    assert "name='post'" in found[0].msg


class Overridden(GuardedOutside):
    post = unreached


class OverriddenAndKeyed(GuardedOutside):
    post = method_decorator(idempotent)(unreached)


class OverriddenAndExempt(GuardedOutside):
    @not_keyed
    def post(self, request: HttpRequest) -> HttpResponse:
        raise NotImplementedError


@method_decorator(idempotent, name="dispatch")
class AsAWhole(View):
    post = unreached


class Inside(AsAWhole):
    """Still inside the keyed `dispatch`."""

    post = unreached


class AroundAsAWhole(LoginRequiredMixin, AsAWhole):
    """Its `dispatch` calls the keyed one."""


class AroundPost(GuardedOutside):
    @method_decorator(never_cache)
    def post(self, request: HttpRequest) -> HttpResponse:
        return super().post(request)


class InPlaceOfTheWhole(AsAWhole):
    dispatch = unreached


class Overrides:
    views = (
        *(Overridden, OverriddenAndKeyed, OverriddenAndExempt),
        *(Inside, AroundAsAWhole, AroundPost, InPlaceOfTheWhole),
    )
    urlpatterns = [
        *(path(view.__name__, view.as_view()) for view in views),
        path("around", idempotent(Overridden.as_view())),
    ]


def test_a_subclass_that_overrides_a_keyed_method_unkeyed_is_named() -> None:
    """Its calls would count twice, and nothing would say so."""
    with override_settings(ROOT_URLCONF=Overrides):
        found = check_keyed_methods(None)
        with override_settings(IDEMPOTENCY={"KEYED": "unsafe"}):
            assert check_keyed_methods(None) == []
    assert {message.id for message in found} == {"idempotency.W009"}
    named = [re.findall(r"\.(\w+) overrides (\w+) of (\w+)", each.msg) for each in found]
    assert named == [
        [("InPlaceOfTheWhole", "dispatch", "AsAWhole")],
        [("Overridden", "post", "GuardedOutside")],
    ]
    assert "Put @idempotent on it too, or @not_keyed." in found[0].msg


@pytest.mark.parametrize("server", [WSGIHandler, ASGIHandler])
def test_a_server_that_runs_no_checks_refuses_to_start_on_useless_settings(server: type[Any]) -> None:
    """Gunicorn and uvicorn: the middleware is what they load, once a process."""
    server()
    with override_settings(IDEMPOTENCY={"WAIT": 3}):
        with pytest.raises(ImproperlyConfigured, match=r"IDEMPOTENCY\['WAIT'\] is unknown"):
            server()
        with override_settings(SILENCED_SYSTEM_CHECKS=["idempotency.E001"]):
            server()


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("wrong", "errors"),
    [
        ({"ROOT_URLCONF": Wrong}, {"E013", "E016", "E019", "E022"}),
        ({"ROOT_URLCONF": TasksAlone, "MIDDLEWARE": [], "IDEMPOTENCY": {"KEYED": "unsafe"}}, {"E002"}),
    ],
)
def test_it_answers_nothing_where_a_view_would_silently_run_unkeyed(
    client: type[Any], wrong: dict[str, Any], errors: set[str]
) -> None:
    """At the first request: importing views sooner may import what makes the server."""
    apps.get_app_config("idempotency").ready()  # as a server does, which may load no middleware of ours
    with override_settings(**wrong):
        for _ in range(2):
            with pytest.raises(ImproperlyConfigured) as refused:
                asked_for_something(client)
            assert set(re.findall(r"idempotency\.(\w\d{3})\)", str(refused.value))) == errors
        for allowed in (
            {"SILENCED_SYSTEM_CHECKS": [f"idempotency.{error}" for error in errors]},
            {"IDEMPOTENCY": {"ENABLED": False}},
        ):
            with override_settings(**allowed):
                asked_for_something(client)


def asked_for_something(client: type[Any]) -> None:
    get = client(raise_request_exception=False).get
    answer = async_to_sync(get)("/") if iscoroutinefunction(get) else get("/")
    assert answer.status_code == 500  # there is no such page, and none to say so


def test_an_address_of_a_subject_that_does_not_exist_is_an_error() -> None:
    names = {
        "order": "admin:shop_order_chnage",
        "user": "admin:auth_user_change",
        "list": "admin:auth_user_changelist",
    }
    with override_settings(ROOT_URLCONF="shop.urls", IDEMPOTENCY={"SUBJECT_ADMIN": names}):
        found = [message.msg for message in run_checks() if message.id == "idempotency.E001"]
    assert [message.split(", and")[0] for message in found] == [
        "IDEMPOTENCY['SUBJECT_ADMIN']['order'] is 'admin:shop_order_chnage'",
        "IDEMPOTENCY['SUBJECT_ADMIN']['list'] is 'admin:auth_user_changelist'",
    ]


def test_a_missing_constraint_is_an_error_also_if_another_table_has_one_of_its_name() -> None:
    assert check_constraint(None, databases=["default"]) == check_constraint(None, databases=None) == []
    with transaction.atomic(), connection.cursor() as cursor:  # as a failed REINDEX CONCURRENTLY leaves it
        cursor.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass", [UNIQUE])
        assert [each.id for each in check_constraint(None, databases=["default"])] == ["idempotency.E007"]
        transaction.set_rollback(True)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE idempotency_ledgerentry DROP CONSTRAINT {UNIQUE}")
        cursor.execute(f"CREATE TABLE elsewhere (scope int, key int, CONSTRAINT {UNIQUE} UNIQUE (scope, key))")
        (message,) = [each for each in run_checks(databases=["default"]) if each.id == "idempotency.E007"]
        transaction.set_rollback(True)
    assert "nothing would stop a second execution" in message.msg
    restored = f"ALTER TABLE idempotency_ledgerentry ADD CONSTRAINT {UNIQUE} UNIQUE (key, scope)."
    assert f"Restore it: {restored}" in str(message.hint)


def test_another_database_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "sqlite")
    assert check_constraint(None, databases=["default"]) == []
    (message,) = [message for message in check_settings(None) if message.id == "idempotency.E006"]
    assert "IDEMPOTENCY['DATABASE'] is 'default', and DATABASES has sqlite there" in message.msg
    with override_settings(IDEMPOTENCY={"ENABLED": False}):
        assert check_settings(None) == check_constraint(None, databases=["default"]) == []


def test_a_server_that_logs_statements_is_a_warning() -> None:
    settings = [
        ("log_min_error_statement", "error"),
        ("log_error_verbosity", "default"),
        ("log_statement", "mod"),
        ("log_min_duration_statement", "250ms"),
        ("log_transaction_sample_rate", "0.5"),
        ("auto_explain.log_min_duration", "1s"),
    ]
    assert check_server_log(None, databases=None) == []
    for name, value in settings:
        with transaction.atomic(), connection.cursor() as cursor:
            for quiet in ("log_min_error_statement = panic", "log_error_verbosity = terse"):
                cursor.execute(f"SET LOCAL {quiet}")
            assert check_server_log(None, databases=["default"]) == []
            cursor.execute(f"SET LOCAL {name} = '{value}'")
            (message,) = check_server_log(None, databases=["default"])
        assert (message.id, message.is_serious()) == ("idempotency.W002", False)
        assert message.msg.endswith(f"into its log: {name} = {value}.")
