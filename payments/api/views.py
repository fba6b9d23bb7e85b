"""HTTP mapping only: payments and refunds under the API, notifications of the providers."""

import uuid
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.request import HttpHeaders
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from idempotency.call import KeyedCall
from idempotency.drf import idempotent
from idempotency.errors import Problem
from payments.api.refunding import refunding
from payments.api.serializers import PaymentSerializer, RefundRequest, RefundSerializer, represent_payment
from payments.errors import NotificationMalformed, SignatureInvalid
from payments.models import Payment
from payments.webhooks import intake as webhooks

KEY = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, required=True)
REPLAYED = OpenApiParameter("Idempotent-Replayed", str, OpenApiParameter.HEADER, response=True)
ETAG = OpenApiParameter("ETag", str, OpenApiParameter.HEADER, response=[200])


_IN_META = {name: HttpHeaders.to_wsgi_name(name) for name in webhooks.KEPT_HEADERS}


def _problem(*codes: str) -> OpenApiResponse:
    """Name the problem codes of a response for the schema's hook."""
    return OpenApiResponse(description=", ".join(f"`{code}`" for code in codes))


def _visible(request: Request) -> QuerySet[Payment]:
    """Select the caller's own payments; every payment for staff who may see payments."""
    if request.user.has_perm("payments.view_payment"):
        return Payment.objects.all()
    return Payment.objects.filter(owner_id=request.user.pk)


def _find(request: Request, payment_id: uuid.UUID) -> Payment:
    payment = _visible(request).filter(pk=payment_id).first()
    if payment is None:
        raise Problem(404, "payment_not_found", "There is no such payment of yours.")
    return payment


class PaymentDetail(APIView):
    """One payment."""

    @extend_schema(
        operation_id="payments_read",
        summary="Read a payment",
        parameters=[ETAG],
        responses={200: PaymentSerializer, 404: _problem("payment_not_found")},
    )
    def get(self, request: Request, payment_id: uuid.UUID) -> Response:
        payment = _find(request, payment_id)
        return Response(represent_payment(payment), headers={"ETag": f'"{payment.version}"'})


class RefundList(APIView):
    """Refunds of a payment, by its owner or by staff with `payments.add_refund`."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check the permission before the key, so that a replay checks it too."""
        super().initial(request, *args, **kwargs)
        owner_id = Payment.objects.filter(pk=kwargs["payment_id"]).values_list("owner_id", flat=True).first()
        if owner_id in (None, request.user.pk):
            return
        _find(request, kwargs["payment_id"])
        if not request.user.has_perm("payments.add_refund"):
            raise Problem(403, "refund_not_allowed", "You may see this payment, but not refund it.")

    @extend_schema(
        operation_id="payments_refund",
        summary="Refund a payment, in part or whole",
        description="201: the money is on its way back. 202: the provider is still at it, or did not answer; the "
        "same key again returns the current state. Refunds together never exceed what was paid.",
        parameters=[KEY, REPLAYED],
        request=RefundRequest,
        responses={
            201: RefundSerializer,
            202: RefundSerializer,
            400: _problem("validation_failed"),
            403: _problem("refund_not_allowed"),
            404: _problem("payment_not_found"),
            409: _problem("refund_exceeds_paid", "refund_refused"),
            503: _problem("provider_unavailable"),
        },
    )
    @idempotent(body=RefundRequest, mode=refunding)
    def post(
        self, request: Request, payment_id: uuid.UUID, *, data: dict[str, Any], call: KeyedCall
    ) -> HttpResponseBase:
        payment = _find(request, payment_id)
        call.about("payment", payment.id)
        return refunding.respond(request, {"payment": payment.id.hex, **data})


# status and reason of a refusal, by what `receive` raises
_REFUSALS: dict[type[Exception], tuple[int, str]] = {
    SignatureInvalid: (401, "The signature does not verify."),
    NotificationMalformed: (400, "The notification cannot be read."),
    webhooks.ProcessingFailed: (500, "The notification could not be processed; please send it again."),
    webhooks.NotStored: (503, "The notification could not be stored; please send it again."),
}


def _receive(request: HttpRequest, channel: str) -> tuple[int, str] | None:
    """Store and process a notification; returns status and reason of a refusal."""
    headers = {name: request.META[variable] for name, variable in _IN_META.items() if variable in request.META}
    try:
        # one byte more than the limit, so that `receive` sees what is too long
        webhooks.receive(channel=channel, headers=headers, body=request.read(webhooks.MAX_BODY_BYTES + 1))
    except tuple(_REFUSALS) as error:
        return next(answer for kind, answer in _REFUSALS.items() if isinstance(error, kind))
    return None


@csrf_exempt
@require_POST
def wechat_webhook(request: HttpRequest) -> HttpResponse:
    """Receive `POST /webhooks/wechat` (docs/contract.md, 3).

    Source: WeChat Pay API v3, "payment result notification": any 2xx acknowledges, an error is answered
    ``{"code": "FAIL", "message": …}`` (read 2026-11).
    """
    refused = _receive(request, "wechat")
    if refused is None:
        return HttpResponse(status=204)
    status, message = refused
    headers = {"Retry-After": "1"} if status == 503 else {}
    return JsonResponse({"code": "FAIL", "message": message}, status=status, headers=headers)


@csrf_exempt
@require_POST
def alipay_webhook(request: HttpRequest) -> HttpResponse:
    """Receive `POST /webhooks/alipay` (docs/contract.md, 3).

    Source: Alipay open platform, "asynchronous notification": the body ``success`` acknowledges, anything else
    is sent again (read 2026-11).
    """
    answer = "success" if _receive(request, "alipay") is None else "fail"
    return HttpResponse(answer, content_type="text/plain")


@csrf_exempt
@require_POST
def stripe_webhook(request: HttpRequest) -> HttpResponse:
    """Receive `POST /webhooks/stripe` (docs/contract.md, 3).

    Source: Stripe, "Receive Stripe events in your webhook endpoint": any 2xx acknowledges, anything else is sent
    again for up to three days (read 2026-11). It reads the status only; the reason is for the dashboard.
    """
    status, message = _receive(request, "stripe") or (200, "received")
    headers = {"Retry-After": "1"} if status >= 500 else {}
    status = 400 if status == 401 else status
    return HttpResponse(message, status=status, content_type="text/plain", headers=headers)
