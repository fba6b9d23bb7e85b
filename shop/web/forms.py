"""Forms of the pages. Shape only; the domain modules decide the rest."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

from django import forms
from django.conf import settings
from django.core.validators import validate_slug
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from payments.channels import configured
from payments.money import EXPONENTS
from payments.providers import ConfigError
from payments.providers.actions import PayMethod
from shop.orders import checkout
from shop.orders.basket import MAX_UNITS
from shop.orders.placing import MAX_ITEMS

CHANNELS = {"wechat": _("WeChat Pay"), "alipay": _("Alipay"), "stripe": _("Stripe")}

# by channel: the method that opens the wallet on this phone, and the one whose code another phone scans
PHONE = {"wechat": PayMethod.H5, "alipay": PayMethod.PAGE}
CODES = {"wechat": PayMethod.NATIVE, "alipay": PayMethod.PRECREATE}


def channel_name(account: str) -> Any:
    """Name a channel as shoppers know it; a plug-in of another package by its own label."""
    with suppress(ConfigError):  # it is gone
        return CHANNELS.get(account) or gettext(configured.plugin(account).label)
    return account


def channels_for(currency: str | None) -> list[tuple[str, Any]]:
    """List the channels here, with their names, that take the currency (ISO 4217), if any."""
    ours = [name for name in CHANNELS if name in settings.PAYMENTS["PROVIDERS"]]
    here = dict.fromkeys([*ours, *settings.PAYMENTS["PROVIDERS"]])
    return [(name, channel_name(name)) for name in here if checkout.takes(channel=name, currency=currency)]


# as a person says it; Django's own words do for what is no number
HOW_MANY = {
    "min_value": _("At least %(limit_value)s."),
    "max_value": _("At most %(limit_value)s."),
}


class BuyForm(forms.Form):
    quantity = forms.IntegerField(
        label=_("Quantity"),
        min_value=1,
        max_value=MAX_UNITS,
        initial=1,
        error_messages=HOW_MANY,
        widget=forms.NumberInput(attrs={"inputmode": "numeric", "autocomplete": "off"}),
    )


class BasketForm(forms.Form):
    """Quantities of the products `skus`, and those in the basket when the page was drawn."""

    def __init__(self, *args: Any, skus: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.skus = list(skus)
        for sku in self.skus:
            self.fields[f"quantity.{sku}"] = forms.IntegerField(
                label=_("Quantity"), min_value=0, max_value=MAX_UNITS, error_messages=HOW_MANY
            )
            self.fields[f"held.{sku}"] = forms.IntegerField(
                min_value=0, max_value=MAX_UNITS, widget=forms.HiddenInput
            )

    @classmethod
    def sent(cls, fields: Mapping[str, Any]) -> "BasketForm":
        """Bind the form to what was sent, with as many products as an order may have."""
        named = [name.removeprefix("quantity.") for name in fields if name.startswith("quantity.")]
        return cls(fields, skus=[sku for sku in named if _is_sku(sku)][:MAX_ITEMS])

    @classmethod
    def of(cls, held: Mapping[str, int]) -> "BasketForm":
        """Fill the form from the basket."""
        fields = {f"{kind}.{sku}": units for sku, units in held.items() for kind in ("quantity", "held")}
        return cls(skus=held, initial=fields)

    @property
    def wanted(self) -> dict[str, int]:
        """Quantities by sku, after `is_valid`."""
        return {sku: self.cleaned_data[f"quantity.{sku}"] for sku in self.skus}

    @property
    def held(self) -> dict[str, int]:
        """Quantities that the page was drawn with, after `is_valid`."""
        return {sku: self.cleaned_data[f"held.{sku}"] for sku in self.skus}


def _is_sku(text: str) -> bool:
    try:
        validate_slug(text)
    except forms.ValidationError:
        return False
    return len(text) <= 64


class RefundForm(forms.Form):
    """Amount and reason of a refund of up to `left_minor`, in minor units of the currency."""

    reason = forms.CharField(label=_("Reason"), max_length=80, required=False)

    def __init__(self, *args: Any, left_minor: int, currency: str, **kwargs: Any) -> None:
        self.digits = EXPONENTS.get(currency, 2)
        most = Decimal(left_minor).scaleb(-self.digits)
        super().__init__(*args, **kwargs)
        self.initial["amount"] = f"{most:f}"  # no language writes it as the field does not read it
        self.fields["amount"] = forms.DecimalField(
            label=_("Amount"),
            min_value=Decimal(1).scaleb(-self.digits),
            max_value=Decimal(10**15),  # the payment decides what is too much
            decimal_places=self.digits,
        )

    @property
    def amount_minor(self) -> int:
        """Amount in minor units, after `is_valid`."""
        return int(self.cleaned_data["amount"].scaleb(self.digits))


class PayForm(forms.Form):
    """Channel, of those set up here, and its method, where the shopper chose one.

    Args:
        currency: of the order, ISO 4217; offers only channels that take it. None leaves that to the checkout.
        begun: the channel that the shopper may want to leave: another one is preset.
    """

    channel = forms.ChoiceField(
        label=_("Pay with"),
        widget=forms.RadioSelect,
        error_messages=dict.fromkeys(("required", "invalid_choice"), _("Choose how you want to pay.")),
    )
    method = forms.SlugField(max_length=16, required=False)  # the checkout knows which there are

    def __init__(self, *args: Any, currency: str | None = None, begun: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = channels_for(currency)
        field = self.fields["channel"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101
        field.choices = choices
        names = [name for name, _label in choices]
        field.initial = next((name for name in names if name != begun), begun)
