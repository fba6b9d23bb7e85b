"""A shop's checkout: a form, a redirect, and a page of thanks that knows the order from the session alone."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import path
from django.views.decorators.http import require_POST
from notes.models import Note
from notes.views import front

from idempotency import idempotent


@require_POST
@idempotent
def place(request: HttpRequest) -> HttpResponse:
    """Place the order and show it on the next page."""
    request.session["order"] = Note.objects.create(text=request.POST["text"]).pk
    return redirect("thanks")


def thanks(request: HttpRequest) -> HttpResponse:
    """Thank for the order that the session remembers."""
    order = Note.objects.get(pk=request.session["order"])
    return JsonResponse({"id": order.pk, "text": order.text})


urlpatterns = [
    path("", front),
    path("checkout/", place),
    path("checkout/thanks/", thanks, name="thanks"),
]
