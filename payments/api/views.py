"""HTTP mapping only: payments and refunds under the API, notifications of the providers."""

import uuid
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from django.http.response import HttpResponseBase
from django.utils.translation import gettext_noop as _
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from idempotency.call import KeyedCall
from idempotency.drf import IdempotentMixin, idempotent
from idempotency.errors import Problem
from idempotency.postgres.snapshot import snapshot
from idempotency.webhooks.intake import door
from payments.api.refunding import refunding
from payments.api.serializers import PaymentSerializer, RefundRequest, RefundSerializer
from payments.channels import configured as channels
from payments.errors import NotificationMalformed, SignatureInvalid
from payments.models import Payment
from payments.providers.plugin import Plugin, Refusal
from payments.providers.registry import ConfigError
from payments.webhooks import intake as webhooks
from payments.webhooks import nonces

KEY = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, required=True)
REPLAYED = OpenApiParameter("Idempotent-Replayed", str, OpenApiParameter.HEADER, response=True)
ETAG = OpenApiParameter("ETag", str, OpenApiParameter.HEADER, response=[200])


def _problem(*codes: str) -> OpenApiResponse:
    """Name the problem codes of a response for the schema's hook."""
    return OpenApiResponse(description=", ".join(f"`{code}`" for code in codes))


def _find(request: Request, payment_id: uuid.UUID) -> Payment:
    """Read a payment of the caller's; for staff who may see payments, any."""
    whose = {} if request.user.has_perm("payments.view_payment") else {"owner_id": request.user.pk}
    payment = Payment.objects.filter(pk=payment_id, **whose).first()
    if payment is None:
        raise Problem(404, "payment_not_found", _("There is no such payment of yours."))
    return payment


class PaymentDetail(APIView):
    """One payment."""

    permission_classes = (IsAuthenticated,)  # a payment without an owner is nobody's

    @extend_schema(
        operation_id="payments_read",
        summary="Read a payment",
        parameters=[ETAG],
        responses={200: PaymentSerializer, 404: _problem("payment_not_found")},
    )
    def get(self, request: Request, payment_id: uuid.UUID) -> Response:
        with snapshot():
            payment = _find(request, payment_id)
            shown = PaymentSerializer(payment).data
        return Response(shown, headers={"ETag": f'"{payment.version}"'})


class RefundList(IdempotentMixin, APIView):
    """Refunds of a payment, by its owner or by staff with `payments.add_refund`."""

    permission_classes = (IsAuthenticated,)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check the permission before the key, so that a replay checks it too."""
        super().initial(request, *args, **kwargs)
        if Payment.objects.filter(pk=kwargs["payment_id"], owner_id=request.user.pk).exists():
            return
        _find(request, kwargs["payment_id"])
        if not request.user.has_perm("payments.add_refund"):
            raise Problem(403, "refund_not_allowed", _("You may see this payment, but not refund it."))

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


# by what reading it or `receive` raises
_REFUSALS: dict[type[Exception], Refusal] = {
    UnreadablePostError: Refusal(status=400, message="The connection ended before the notification did."),
    SignatureInvalid: Refusal(status=401, message="The signature does not verify."),
    NotificationMalformed: Refusal(status=400, message="The notification cannot be read."),
    webhooks.ProcessingFailed: Refusal(
        status=500, message="The notification could not be processed; please send it again."
    ),
    webhooks.NotStored: Refusal(status=503, message="The notification could not be stored; please send it again."),
}


@door(using=DEFAULT_DB_ALIAS)
def webhook(request: HttpRequest, account: str) -> HttpResponse:
    """Receive `POST /webhooks/<account>` (docs/contract.md, 3); answer as the provider expects."""
    try:
        plugin = channels.plugin(account)
    except ConfigError as unknown:
        raise Http404 from unknown
    answer = plugin.acknowledge(_receive(request, account, plugin))
    return HttpResponse(
        answer.body, status=answer.status, content_type=answer.content_type, headers=dict(answer.headers)
    )


def _receive(request: HttpRequest, account: str, plugin: Plugin) -> Refusal | None:
    headers = {name: request.headers[name] for name in plugin.headers if name in request.headers}
    try:
        # one byte more than the limit, so that `receive` sees what is too long
        body = request.read(webhooks.MAX_BODY_BYTES + 1)
        webhooks.receive(account=account, headers=headers, body=body)
    except tuple(_REFUSALS) as error:
        return next(refusal for kind, refusal in _REFUSALS.items() if isinstance(error, kind))
    if plugin.nonce_header in headers:
        nonces.remember(account, headers=headers, body=body)
    return None
