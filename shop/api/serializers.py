"""The API's JSON to the letter of the contract: validated requests, represented answers.

No writes, no business rules; amounts are integers in the currency's minor unit.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from rest_framework import serializers

from idempotency.maintenance.request_log import RequestLog, read_scope
from idempotency.models import ArrivalOutcome, LedgerEntry, State
from payments.api.serializers import MoneySerializer, WholeNumberField
from payments.providers.actions import PayMethod
from shop.models import Order, OrderStatus
from shop.orders.placing import MAX_ITEMS

MAX_QUANTITY = 10**15  # of one product; less is a matter of stock


class ProductResponse(serializers.Serializer[Any]):
    sku = serializers.SlugField()
    name = serializers.CharField()
    price = MoneySerializer()
    stock = serializers.IntegerField(help_text="units that can be ordered now")
    likes = serializers.IntegerField()
    liked = serializers.BooleanField(help_text="by the caller")


class OrderItemRequest(serializers.Serializer[Any]):
    sku = serializers.SlugField(max_length=64)
    quantity = WholeNumberField(min_value=1, max_value=MAX_QUANTITY)


class OrderRequest(serializers.Serializer[Any]):
    items = serializers.ListField(child=OrderItemRequest(), min_length=1, max_length=MAX_ITEMS)
    note = serializers.CharField(required=False, allow_blank=True, max_length=500, default="")
    coupon = serializers.CharField(required=False, max_length=32, help_text="the caller's own code")

    def validate_items(self, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Refuse a sku that comes twice."""
        skus = [item["sku"] for item in value]
        if len(set(skus)) != len(skus):
            raise serializers.ValidationError("Each sku may appear once; add the quantities up.", code="duplicate")
        return value


class NoteRequest(serializers.Serializer[Any]):
    """The editable part of an order."""

    note = serializers.CharField(allow_blank=True, max_length=500)


class PaymentRequest(serializers.Serializer[Any]):
    channel = serializers.ChoiceField(choices=["wechat", "alipay", "stripe"])
    method = serializers.ChoiceField(
        choices=[method.value for method in PayMethod],
        required=False,
        help_text="wechat: native, h5 or jsapi; alipay: page or precreate; stripe: intent. default: the first.",
    )
    openid = serializers.RegexField(
        r"^[0-9A-Za-z_-]{1,128}$", required=False, help_text="WeChat's id of the shopper, for jsapi"
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("method") == PayMethod.JSAPI and not attrs.get("openid"):
            raise serializers.ValidationError({"openid": "jsapi needs the shopper's openid."})
        return attrs


class OrderItemResponse(serializers.Serializer[Any]):
    """An item at the price of the moment of ordering."""

    sku = serializers.SlugField()
    quantity = serializers.IntegerField()
    price = MoneySerializer(help_text="of one unit")


class OrderResponse(serializers.Serializer[Any]):
    id = serializers.RegexField(r"^[0-9a-f]{32}$")
    status = serializers.ChoiceField(choices=OrderStatus.choices)
    version = serializers.IntegerField(help_text="also the ETag; grows with every change")
    total = MoneySerializer()
    items = OrderItemResponse(many=True)
    note = serializers.CharField(allow_blank=True)
    payment = serializers.RegexField(r"^[0-9a-f]{32}$", allow_null=True, help_text="id of its payment, if any")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(help_text="an unpaid order closes then")


class CouponResponse(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="the caller's own, for good")


class ArrivalResponse(serializers.Serializer[Any]):
    """One request under a key."""

    at = serializers.DateTimeField(help_text="when it was answered")
    outcome = serializers.ChoiceField(choices=ArrivalOutcome.choices)
    changed = serializers.ListField(
        child=serializers.CharField(), help_text="of a 422: what differed from the first request, in words"
    )
    address = serializers.CharField(allow_blank=True)
    request_id = serializers.CharField(allow_blank=True)


class KeyUseResponse(serializers.Serializer[Any]):
    """A call that the key was used for."""

    call = serializers.CharField(help_text="method and route")
    state = serializers.ChoiceField(choices=State.choices)
    status = serializers.IntegerField(allow_null=True, help_text="of its answer; null while it has none")
    created_at = serializers.DateTimeField()
    log = ArrivalResponse(many=True, help_text="the newest first")
    log_is_current = serializers.BooleanField(help_text="false without Redis: calls are missing")


class KeyResponse(serializers.Serializer[Any]):
    key = serializers.CharField()
    uses = KeyUseResponse(many=True)


class ProblemResponse(serializers.Serializer[Any]):
    """An error after RFC 9457, with a stable `code`."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    code = serializers.CharField()
    request_id = serializers.CharField(required=False)


def money(amount_minor: int, currency: str) -> dict[str, Any]:
    """Write an amount as `MoneySerializer` describes it."""
    return {"amount_minor": amount_minor, "currency": currency}


def represent_product(product: Any) -> dict[str, Any]:
    """Represent a `shop.catalog.listings.Listing` as `ProductResponse`."""
    return {
        "sku": product.sku,
        "name": product.local_name,
        "price": money(product.price_minor, product.currency),
        "stock": product.stock,
        "likes": product.like_count,
        "liked": product.liked,
    }


def represent_order(order: Order, *, payment_id: UUID | None) -> dict[str, Any]:
    """Represent an order with its items as `OrderResponse`."""
    return {
        "id": order.id.hex,
        "status": order.status,
        "version": order.version,
        "total": money(order.total_minor, order.currency),
        "items": [
            {"sku": item.sku, "quantity": item.quantity, "price": money(item.price_minor, order.currency)}
            for item in order.lines
        ],
        "note": order.note,
        "payment": None if payment_id is None else payment_id.hex,
        "created_at": order.created_at,
        "expires_at": order.expires_at,
    }


def represent_key(key: str, uses: Iterable[tuple[LedgerEntry, RequestLog]]) -> dict[str, Any]:
    """Represent the entries of a key, each with its log, as `KeyResponse`."""
    return {"key": key, "uses": [_represent_use(entry, log) for entry, log in uses]}


def _represent_use(entry: LedgerEntry, log: RequestLog) -> dict[str, Any]:
    return {
        "call": read_scope(entry.scope)[1],
        "state": entry.state,
        "status": entry.response_status,
        "created_at": entry.created_at,
        "log": [
            {
                "at": line.at,
                "outcome": line.outcome,
                "changed": list(log.changes.get(line.line_id, ())),
                "address": line.address,
                "request_id": line.request_id,
            }
            for line in log.lines
        ],
        "log_is_current": log.is_current,
    }
