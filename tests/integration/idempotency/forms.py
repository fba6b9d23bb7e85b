"""Pages with forms, with the view and the template of docs/how-to/key-a-form.md."""

from typing import Any

from django import forms
from django.contrib.auth.models import Group
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path

from idempotency import idempotent
from idempotency.errors import Problem
from tests import pages
from tests.integration.idempotency.urls import PLAN, effect

PAGE = "docs/how-to/key-a-form.md"
(VIEW,), (TEMPLATE,) = pages.blocks(PAGE), pages.blocks(PAGE, "html")
ALONE = TEMPLATE.replace(" intent=basket", "")

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


def use_templates(settings: Any, templates: dict[str, str]) -> None:
    loaders = [
        ("django.template.loaders.locmem.Loader", templates),
        "django.template.loaders.app_directories.Loader",
    ]
    engine = {**settings.TEMPLATES[0], "APP_DIRS": False}
    settings.TEMPLATES = [{**engine, "OPTIONS": {**engine["OPTIONS"], "loaders": loaders}}]


def shows(answer: Any, status: int, code: str, sentence: str) -> None:
    page = answer.content.decode()
    assert (answer.status_code, answer["Content-Type"]) == (status, "text/html; charset=utf-8")
    assert f"<h1>{sentence}</h1>" in page
    assert f"{status} {code}" in page


def order(note: str) -> str:
    """Order as the test planned it, and return the order's address."""
    if hook := PLAN.get("during"):
        hook()
    made = effect("order")
    if PLAN.get("sold out"):
        raise Problem(409, "out_of_stock", "Nothing is left of it.", title="Sold out")
    return f"/orders/{made.pk}"


def basket_or_404(model: type[Group], **which: Any) -> Group:
    """Find the page's basket: a group that orders."""
    basket = get_object_or_404(model, **which)
    basket.order = order  # type: ignore[attr-defined]
    return basket


class OrderForm(forms.Form):
    note = forms.CharField(max_length=5, required=False)


_view = pages.run(
    VIEW,
    Basket=Group,
    OrderForm=OrderForm,
    get_object_or_404=basket_or_404,
    redirect=redirect,
    render=render,
)


@idempotent
def alone(request: HttpRequest) -> HttpResponse:
    form = OrderForm(request.POST or None)
    return redirect(order(**form.cleaned_data)) if form.is_valid() else render(request, "alone.html")


@idempotent
def previewed(request: HttpRequest, pk: int) -> HttpResponse:
    """Render the form for another use than its answer."""
    render(request, "order.html", {"form": OrderForm(), "basket": basket_or_404(Group, pk=pk)})
    return redirect(order(request.POST["note"]))


@idempotent
async def asynchronous(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


def raising(request: HttpRequest) -> HttpResponse:
    raise PLAN["raise"]


@idempotent
def odd(request: HttpRequest) -> HttpResponseBase:
    """A problem of the view's own making."""
    written = PLAN["written"]
    kind = StreamingHttpResponse if written == "stream" else HttpResponse
    headers = {"Content-Encoding": "gzip"} if written == "gzip" else {}
    return kind([written.encode()], status=400, headers=headers, content_type="application/problem+json")


urlpatterns = [
    path("baskets/<int:pk>", _view["place_order"]),
    path("previewed/<int:pk>", previewed),
    path("alone", alone),
    path("async", asynchronous),
    path("raising", raising),
    path("odd", odd),
]
