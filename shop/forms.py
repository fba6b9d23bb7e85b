"""What the pages' forms accept. Shape only; whether it can be done is for the domain modules to say."""

from typing import Any

from django import forms
from django.conf import settings
from django.utils.translation import gettext_lazy as _

from shop.serializers import MAX_QUANTITY

CHANNELS = {"wechat": _("WeChat Pay"), "alipay": _("Alipay"), "stripe": _("Stripe")}


class BuyForm(forms.Form):
    """How many of the product."""

    quantity = forms.IntegerField(
        label=_("Quantity"),
        min_value=1,
        max_value=MAX_QUANTITY,
        initial=1,
        widget=forms.NumberInput(attrs={"inputmode": "numeric", "autocomplete": "off"}),
    )


class PayForm(forms.Form):
    """By which channel; only those that are set up here."""

    channel = forms.ChoiceField(
        label=_("Pay with"),
        widget=forms.RadioSelect,
        error_messages={
            "required": _("Choose how you want to pay."),
            "invalid_choice": _("Choose how you want to pay."),
        },
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(name, label) for name, label in CHANNELS.items() if name in settings.PAYMENT_CHANNELS]
        field = self.fields["channel"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101
        field.choices = choices
        if choices:
            field.initial = choices[0][0]
