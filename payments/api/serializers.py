"""Payments and refunds as the API shows them (docs/contract.md, 2)."""

from typing import Any

from rest_framework import serializers

from payments.channels import configured
from payments.models import Attempt
from payments.states import AttemptStatus, PaymentStatus, RefundStatus


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

    def to_representation(self, instance: Attempt) -> Any:
        """Represent the attempt's next step by its kind's members; None where there is none."""
        if (action := instance.next_action) is None:
            return None
        added = configured.renderer(instance.account, action.type).members(action)
        return {"type": action.type, "url": action.url, **added}


class AttemptSerializer(serializers.Serializer[Any]):
    channel = serializers.CharField()
    method = serializers.CharField()
    out_trade_no = serializers.CharField(help_text="our number at the provider")
    status = serializers.ChoiceField(choices=[status.value for status in AttemptStatus])
    next_action = NextActionSerializer(
        source="*", allow_null=True, help_text="how the shopper goes on; only while pending"
    )


class PaymentSerializer(serializers.Serializer[Any]):
    """A payment with its attempts, oldest first; ids are 32 hexadecimal characters."""

    id = serializers.CharField(source="id.hex")
    order = serializers.CharField(source="order_no")
    status = serializers.ChoiceField(choices=[status.value for status in PaymentStatus])
    version = serializers.IntegerField()
    amount = MoneySerializer(source="*")
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
