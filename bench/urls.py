"""The project's addresses, and bases of comparison: the same work without a key."""

from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from rest_framework.request import Request
from rest_framework.response import Response

from idempotency.ids import new_id
from idempotency.models import ConsumedMessage
from shop import urls
from shop.api.answers import order_response
from shop.api.orders import OrderList
from shop.api.serializers import OrderRequest
from shop.orders import placing as orders


class BareOrders(OrderList):
    """Orders without keys, as a team writes them before it thinks of retries."""

    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        body = OrderRequest(data=request.data)
        body.is_valid(raise_exception=True)
        quantities = {item["sku"]: item["quantity"] for item in body.validated_data["items"]}
        with transaction.atomic():
            order = orders.create_order(user_id=request.user.pk, quantities=quantities, note="")
            return order_response(order, payment_id=None, status=201)


@csrf_exempt
def bare_row(request: HttpRequest) -> HttpResponse:
    """Commit one INSERT."""
    with transaction.atomic():
        ConsumedMessage.objects.create(consumer="bench", message_id=new_id().hex)
    return HttpResponse(status=201)


# under /api/, where no form of a page is counted
urlpatterns = [path("api/bare/orders", BareOrders.as_view()), path("api/bare/row", bare_row), *urls.urlpatterns]
