"""Payments and refunds as the API shows them (docs/contract.md, 2)."""

from typing import Any

from rest_framework import serializers

from payments.channels import configured
from payments.models import Attempt, Payment
from payments.states import AttemptStatus, PaymentStatus, RefundStatus


def represent_payment(payment: Payment) -> dict[str, Any]:
    """Represent the payment with its attempts, oldest first; ids are 32 hexadecimal characters."""
    return {
        "id": payment.id.hex,
        "order": payment.order_no,
        "status": payment.status,
        "version": payment.version,
        "amount": {"amount_minor": payment.amount_minor, "currency": payment.currency},
        "paid_minor": payment.paid_minor,
        "refunded_minor": payment.refunded_minor,
        "attempts": [represent_attempt(attempt) for attempt in payment.attempts.order_by("id")],
    }


def represent_attempt(attempt: Attempt) -> dict[str, Any]:
    """Represent one of the payment's `attempts`."""
    action = attempt.next_action
    shown = action and {
        "type": action.type,
        "url": action.url,
        **configured.renderer(attempt.account, action.type).members(action),
    }
    return {
        "channel": attempt.channel,
        "method": attempt.method,
        "out_trade_no": attempt.out_trade_no,
        "status": attempt.status,
        "next_action": shown,
    }


class WholeNumberField(serializers.IntegerField):
    """A JSON number without a fraction; refuses texts, ``1.0`` and ``true``."""

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:
            self.fail("invalid")
        return super().to_internal_value(data)


class MoneySerializer(serializers.Serializer[Any]):
    amount_minor = serializers.IntegerField(help_text="in the currency's minor unit")
    currency = serializers.CharField(help_text="ISO 4217")


class NextActionSerializer(serializers.Serializer[Any]):
    type = serializers.CharField(help_text="qr_code, redirect, jsapi, or a plug-in's, with members of its own")
    url = serializers.CharField(help_text="to draw or to go to; empty for jsapi")
    params = serializers.DictField(
        child=serializers.CharField(), required=False, help_text="jsapi: arguments of the wallet's own script"
    )


class AttemptSerializer(serializers.Serializer[Any]):
    channel = serializers.CharField()
    method = serializers.CharField()
    out_trade_no = serializers.CharField(help_text="our number at the provider")
    status = serializers.ChoiceField(choices=[status.value for status in AttemptStatus])
    next_action = NextActionSerializer(allow_null=True, help_text="how the shopper goes on; only while pending")


class PaymentSerializer(serializers.Serializer[Any]):
    """Shape of `represent_payment`, for the schema."""

    id = serializers.CharField()
    order = serializers.CharField()
    status = serializers.ChoiceField(choices=[status.value for status in PaymentStatus])
    version = serializers.IntegerField()
    amount = MoneySerializer()
    paid_minor = serializers.IntegerField()
    refunded_minor = serializers.IntegerField()
    attempts = AttemptSerializer(many=True)


class RefundRequest(serializers.Serializer[Any]):
    """Body of a refund call."""

    amount_minor = WholeNumberField(min_value=1, max_value=10**15)
    reason = serializers.CharField(max_length=80, required=False, default="", allow_blank=True)


class RefundSerializer(serializers.Serializer[Any]):
    """A refund; ids are 32 hexadecimal characters."""

    id = serializers.CharField(source="id.hex")
    payment = serializers.CharField(source="payment_id.hex")
    amount_minor = serializers.IntegerField()
    reason = serializers.CharField()
    status = serializers.ChoiceField(choices=[status.value for status in RefundStatus])
    created_at = serializers.DateTimeField()
