"""Form that announces a flash sale: money as people write it, times with their zone."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from idempotency.admin.pages import in_utc
from payments.money import EXPONENTS
from shop.admin.products import PriceField
from shop.models import FlashSale, Product


class FlashSaleForm(forms.ModelForm):  # type: ignore[type-arg]
    """Form of a new sale; the former price is in the chosen product's currency."""

    former_price_minor = PriceField(
        label=_("Former price"),
        required=False,
        help_text=_("As in 399.00, in the product's currency; shown struck through. May be empty."),
    )

    class Meta:
        model = FlashSale
        fields = ("product", "units", "former_price_minor", "starts_at", "ends_at")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in {"starts_at", "ends_at"} & self.fields.keys():
            self.fields[name].label = in_utc(self.fields[name].label)
        chosen = str(self.data.get(self.add_prefix("product"), ""))
        product = Product.objects.filter(pk=chosen).first() if chosen.isdecimal() else None
        if product is not None and product.currency in EXPONENTS:
            self.fields["former_price_minor"].currency = product.currency  # type: ignore[attr-defined]
