"""The keyed views, as a user of the wheel writes them."""

from rest_framework.request import Request
from rest_framework.response import Response

from bench.plain.models import Order
from bench.plain.views import Orders, content, created, place
from idempotency import KeyedCall
from idempotency.drf import idempotent
from idempotency.modes import PHASED


class KeyedOrders(Orders):
    """Orders whose row, ledger row and answer commit together."""

    @idempotent
    def post(self, request: Request) -> Response:
        """Place an order."""
        return created(place(request))


class PhasedOrders(Orders):
    """Orders in a transaction of their own."""

    @idempotent(mode=PHASED)
    def post(self, request: Request, *, call: KeyedCall) -> Response:
        """Place an order. The mode asks that a handler resumes, so look for the row first."""
        if call.resumed:
            found = Order.objects.filter(reference=request.data["reference"]).first()
            if found is not None:
                return created(content(found))
        return created(place(request))
