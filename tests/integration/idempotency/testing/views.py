"""Views for `assert_once`: right ones, and wrong ones as projects write them."""

import threading
import uuid
from typing import Any

from django.contrib.auth.models import Group
from django.core.cache import cache
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from idempotency import views
from idempotency.modes import PHASED
from tests.integration.idempotency.urls import effect

COPIES = 8
GATE = threading.Barrier(COPIES, timeout=30)
ANSWERS: dict[str, int] = {}


def made(request: Any = None) -> HttpResponse:
    return HttpResponse(effect("made").pk, status=201)


def key_of(request: HttpRequest) -> str:
    return request.headers["Idempotency-Key"]


# right ones


@csrf_exempt
@views.idempotent
def plain(request: HttpRequest) -> HttpResponse:
    return made() if request.POST.get("sku") == "mug" else HttpResponse("no such thing", status=404)


@views.idempotent
async def asynchronous(request: HttpRequest) -> HttpResponse:
    return HttpResponse((await Group.objects.acreate(name=f"made {uuid.uuid4()}")).pk, status=201)


@views.idempotent(header="X-Order")
def of_its_own_header(request: HttpRequest) -> HttpResponse:
    return made()


@views.idempotent(mode=PHASED)
def phased(request: HttpRequest) -> HttpResponse:
    with transaction.atomic():
        return made()


@views.idempotent
def two(request: HttpRequest) -> HttpResponse:
    made()
    return made()


@views.idempotent
def once_a_basket(request: HttpRequest) -> HttpResponse:
    basket, is_new = Group.objects.get_or_create(name=f"basket {request.POST['basket']}")
    return HttpResponse(basket.pk, status=201 if is_new else 409)


# wrong ones


def not_keyed(request: HttpRequest) -> HttpResponse:
    return made()


def remembered_by_the_cache(request: HttpRequest) -> HttpResponse:
    """Claims in Redis and stores the answer there, and nowhere else."""
    name = f"order:{key_of(request)}"
    if not cache.add(name, "running"):
        found = cache.get(name)
        return HttpResponse(found, status=409 if found == "running" else 201)
    with transaction.atomic():
        answer = made()
    cache.set(name, answer.content.decode())
    return answer


def looks_before_it_makes(request: HttpRequest) -> HttpResponse:
    """Two that look at once both find nothing."""
    if key_of(request) in ANSWERS:
        return HttpResponse(ANSWERS[key_of(request)], status=201)
    if threading.current_thread().name.startswith("ThreadPool"):
        GATE.wait()  # so that they do
    answer = made()
    ANSWERS[key_of(request)] = int(answer.content)
    return answer


@views.idempotent
def elsewhere(request: HttpRequest) -> HttpResponse:
    """Writes over another connection, as a model of another alias does."""
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("INSERT INTO auth_group (name) VALUES (%s)", [f"made {uuid.uuid4()}"])
    other.close()
    return HttpResponse(status=201)


@views.idempotent
def inner(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=201)


def around(request: HttpRequest) -> HttpResponse:
    effect("before it")
    response: HttpResponse = inner(request)
    return response


def after(request: HttpRequest) -> HttpResponse:
    response: HttpResponse = inner(request)
    if response.status_code == 201 and "Idempotent-Replayed" not in response:
        effect("after it")
    return response


def refuses_the_second(request: HttpRequest) -> HttpResponse:
    """Happens once, by a unique constraint; the caller of the lost answer hears that it failed."""
    _, is_new = Group.objects.get_or_create(name=key_of(request))
    return HttpResponse(status=201 if is_new else 400)


urlpatterns = [
    path("orders", plain),
    path("orders/", plain),
]
