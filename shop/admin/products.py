"""Products in the admin, edited over what the editor saw; a page is saved once.

Stock changes by a difference and is never overwritten: shoppers buy while a person counts.

Django builds the form of a POST on the current row, so another editor's save would look like this editor's wish to
revert it, and a second click would move the stock again. Therefore a page carries, signed, the values it showed
and a number of its own. Constraint: unique (consumer, message id) of the inbox.
"""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core import signing
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from idempotency.admin.pages import OwnFilters, column, in_utc
from idempotency.ids import new_id
from idempotency.inbox import consume_once
from payments.admin.forms import in_minor
from payments.display import money
from payments.money import EXPONENTS, to_decimal
from shop import stock
from shop.catalog import cache
from shop.catalog import products as catalog
from shop.models import SEGMENTS_MAX, FlashSale, Product, ProductQuerySet, StockStrategy

ARRANGED = ("strategy", "segments")
SALT = "shop.admin.orders.product.2"  # changes with the shape of what is signed
UNITS_MAX = 10**9  # a column holds twice as many
FORM_SECONDS = 86_400  # far less than an inbox remembers a number (`TOMBSTONE_SECONDS`)

EDITABLE = ("name", "name_zh", "description", "description_zh", "picture", "price_minor", "currency", "flash_only")
TEXTS_AND_PRICE = ("sku", *EDITABLE)


class NotSaved(Exception):
    """A form of which nothing was saved; the sentence is for the editor."""


class TooFewUnits(NotSaved):
    """A change takes more units than there are; the form is shown again with its input."""


class PriceField(forms.Field):
    """Minor units, shown and typed as money: ``19.90``; `currency`: ISO 4217; set by the form."""

    currency = "CNY"
    widget = forms.TextInput(attrs={"inputmode": "decimal", "size": 12})

    def prepare_value(self, value: Any) -> Any:
        return to_decimal(value, self.currency) if isinstance(value, int) else value

    def to_python(self, value: Any) -> int | None:
        return in_minor(str(value), self.currency) if value else None


class ProductForm(forms.ModelForm):  # type: ignore[type-arg]
    """Form of a product; the stock of an existing one is moved by a difference.

    Attributes:
        number: of the page that the editor got; the same in every copy that is sent.
        refused: the reason why the same form was not saved, shown with it.
    """

    refused = ""
    price_minor = PriceField(label=_("Price"), help_text=_("As in 19.90, in the currency below."))
    stock_difference = forms.IntegerField(
        label=_("Stock difference"),
        required=False,
        initial=0,
        max_value=UNITS_MAX,
        help_text=_("Units to add, or with a minus sign to take away; 0 leaves the stock alone."),
    )
    strategy = forms.ChoiceField(
        label=_("How units are taken"),
        required=False,
        choices=StockStrategy.choices,
        help_text=_("May be changed while orders are on their way."),
    )
    segments = forms.IntegerField(
        label=_("Segments"),
        required=False,
        min_value=1,
        max_value=SEGMENTS_MAX,
        help_text=_("Of a product with several rows: about as many as orders that are written at once."),
    )
    seen = forms.CharField(label=_("Seen"), required=False, widget=forms.HiddenInput)

    class Meta:
        model = Product
        fields = (*TEXTS_AND_PRICE, "stock")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.number = ""
        self.initial["strategy"] = self.instance.stock_strategy
        self.initial["segments"] = self.instance.stock_segments
        currency = self.data.get(self.add_prefix("currency"), self.instance.currency)
        if "price_minor" in self.fields and currency in EXPONENTS:
            self.fields["price_minor"].currency = currency  # type: ignore[attr-defined]
        if self.instance.pk is None:
            return
        if self.is_bound:
            self._recall(str(self.data.get(self.add_prefix("seen"), "")))
        else:
            self.initial["seen"] = self._as_seen()

    def clean_currency(self) -> str:
        """Refuse a currency without a known minor unit: it would be charged at another price."""
        currency = str(self.cleaned_data["currency"])
        if currency not in EXPONENTS:
            raise forms.ValidationError(_("Write a currency's code of ISO 4217, such as CNY."))
        return currency

    def clean(self) -> dict[str, Any] | None:
        """Refuse an edit without the values that it was made on."""
        if self.instance.pk is not None and not self.number:
            old = _("This page is more than a day old, or not of this product; load it again.")
            raise forms.ValidationError(old)
        return super().clean()

    def clean_stock_difference(self) -> int | None:
        if self.refused:
            raise forms.ValidationError(self.refused)
        difference: int | None = self.cleaned_data["stock_difference"]
        return difference

    def arrangement(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return strategy and segments as the editor saw them, and as wanted; an empty field stays."""
        before = {name: self.initial[name] for name in ARRANGED}
        return before, {name: self.cleaned_data[name] or before[name] for name in ARRANGED}

    def _as_seen(self) -> str:
        values = {name: getattr(self.instance, name) for name in EDITABLE}
        values |= {name: self.initial[name] for name in ARRANGED}
        return signing.dumps({"product": self.instance.pk, "number": new_id().hex, "values": values}, salt=SALT)

    def _recall(self, seen: str) -> None:
        """Put the values that the editor saw into `initial`, with which Django compares."""
        try:
            shown = signing.loads(seen, salt=SALT, max_age=FORM_SECONDS)
        except signing.BadSignature:
            return
        if shown["product"] == self.instance.pk:
            self.number = shown["number"]
            self.initial |= shown["values"] | {"seen": seen}


class FlashSaleForm(forms.ModelForm):  # type: ignore[type-arg]
    """Form that announces a sale; the former price is in the chosen product's currency."""

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


class AddedOnce:
    """Mixin that judges a form again whose unique value was taken meanwhile."""

    def changeform_view(self, *args: Any, **kwargs: Any) -> HttpResponse:
        view: Any = super().changeform_view  # type: ignore[misc]
        try:
            return view(*args, **kwargs)  # type: ignore[no-any-return]
        except IntegrityError:
            return view(*args, **kwargs)  # type: ignore[no-any-return]


class ProductAdmin(AddedOnce, OwnFilters, admin.ModelAdmin):  # type: ignore[type-arg]
    """Products: texts and price are edited, stock is moved."""

    form = ProductForm
    list_display = ("sku", "name", "name_zh", "price", "units", "stock_strategy", "flash_only")
    list_filter = ("flash_only", "currency", "stock_strategy")
    search_fields = ("sku", "name", "name_zh")

    class Media:
        css = {"all": ["idempotency/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Product]:
        products: ProductQuerySet = super().get_queryset(request)  # type: ignore[assignment]
        return products.with_units()

    units = column(lambda product: product.units, _("stock"), ordering="units")
    price = column(lambda row: money(row.price_minor, row.currency), _("price"), ordering="price_minor")

    def get_readonly_fields(self, request: HttpRequest, obj: Product | None = None) -> tuple[str, ...]:
        return () if obj is None else ("sku", "price", "units", "version")

    def get_fields(self, request: HttpRequest, obj: Product | None = None) -> Any:
        if obj is None:
            return (*TEXTS_AND_PRICE, "stock", "strategy", "segments")
        if not self.has_change_permission(request, obj):  # the columns; the form's own fields are no use
            seen = ("price" if name == "price_minor" else name for name in TEXTS_AND_PRICE)
            return (*seen, "units", "stock_strategy", "stock_segments", "version")
        return (*TEXTS_AND_PRICE, "units", "stock_difference", "strategy", "segments", "version", "seen")

    def has_delete_permission(self, request: HttpRequest, obj: Product | None = None) -> bool:
        return False  # orders refer to it

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Catch refusals outside of Django's transaction: nothing is written or said to succeed."""
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except TooFewUnits as refused:
            request.refused = str(refused)  # type: ignore[attr-defined]
            return super().changeform_view(request, object_id, form_url, extra_context)
        except NotSaved as refused:
            messages.error(request, str(refused))
            return HttpResponseRedirect(request.get_full_path())

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        made: Any = super().get_form(request, obj, change, **kwargs)
        made.refused = getattr(request, "refused", "")
        return made

    def save_model(self, request: HttpRequest, obj: Product, form: Any, change: bool) -> None:
        """Write the edited values over those that the editor saw; each page once, all or nothing."""
        with transaction.atomic():
            if change:
                self._edit(obj, form)
            else:
                super().save_model(request, obj, form, change)
                self._arrange(obj, form)
                cache.publish_change()

    def _edit(self, product: Product, form: Any) -> None:
        if not consume_once(form.number, consumer="admin.product"):
            raise NotSaved(gettext("This page was saved before; nothing was done again."))
        edited = [name for name in form.changed_data if name in EDITABLE]
        if edited and not catalog.edit_product(
            product_id=product.pk,
            before={name: form.initial[name] for name in edited},
            after={name: form.cleaned_data[name] for name in edited},
        ):
            raise NotSaved(gettext("Somebody else edited this product meanwhile; nothing was saved."))
        self._arrange(product, form)
        difference = form.cleaned_data["stock_difference"] or 0
        if difference and not stock.adjust(product_id=product.pk, difference=difference):
            raise TooFewUnits(gettext("There are fewer units than you take away; nothing was saved."))

    def _arrange(self, product: Product, form: Any) -> None:
        """Change the stock strategy, if the form says another one than the editor saw."""
        before, wanted = form.arrangement()
        if wanted != before and not stock.arrange(product_id=product.pk, before=before, **wanted):
            raise NotSaved(gettext("Somebody else edited this product meanwhile; nothing was saved."))

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        """Add the number of units counted in or out to the history."""
        parts: list[dict[str, Any]] = super().construct_change_message(request, form, formsets, add)
        difference = form.cleaned_data.get("stock_difference")
        for part in parts:
            if fields := part.get("changed", {}).get("fields"):
                named = {"Stock difference": f"Stock difference {difference:+}"} if difference else {}
                part["changed"]["fields"] = [named.get(name, name) for name in fields]
        return parts
