"""The shop's tables for the operator: products go through `shop.catalog` and `shop.stock`, orders are read.

Stock is changed by a difference, never overwritten: shoppers go on buying while a person counts.
"""

import uuid
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from rest_framework.authtoken.models import TokenProxy

from idempotency import admin as ledger_admin
from idempotency import searching
from idempotency.filters import newest
from idempotency.searching import WholeTermSearch
from payments.admin.filters import Opened
from payments.money import EXPONENTS
from shop import catalog, flashsale, orders, stock, window
from shop.models import (
    SEGMENTS_MAX,
    Campaign,
    Coupon,
    FlashSale,
    FlashSalePurchase,
    Like,
    Order,
    OrderItem,
    OrderStatus,
    Product,
    ProductQuerySet,
    StockStrategy,
)
from shop.templatetags.shop import money

admin.site.site_header = "PayOnce"
admin.site.site_title = "PayOnce"
admin.site.index_title = _("Shop, payments and ledger")
# its pages show API tokens in full; `manage.py drf_create_token` makes one for whom it is for
if admin.site.is_registered(TokenProxy):
    admin.site.unregister(TokenProxy)


class ProductForm(forms.ModelForm):  # type: ignore[type-arg]
    """A product; for an existing one, its stock is moved by a difference."""

    stock_difference = forms.IntegerField(
        label=_("Stock difference"),
        required=False,
        initial=0,
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

    class Meta:
        model = Product
        fields = ("sku", "name", "description", "picture", "price_minor", "currency", "flash_only", "stock")

    def clean_currency(self) -> str:
        """One whose minor unit is known: everything else would be shown and charged at another price."""
        currency = str(self.cleaned_data["currency"])
        if currency not in EXPONENTS:
            raise forms.ValidationError(_("One of %(known)s."), params={"known": ", ".join(EXPONENTS)})
        return currency

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["strategy"] = self.instance.stock_strategy
        self.initial["segments"] = self.instance.stock_segments


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Name, price and window texts are edited; the stock is moved."""

    form = ProductForm
    list_display = ("sku", "name", "price", "units", "stock_strategy", "flash_only", "version")
    list_filter = ("flash_only", "currency", "stock_strategy")
    search_fields = ("sku", "name")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Product]:
        products: ProductQuerySet = super().get_queryset(request)  # type: ignore[assignment]
        return products.with_units()

    @admin.display(description=_("stock"), ordering="units")
    def units(self, product: Any) -> int:
        return int(product.units)

    @admin.display(description=_("price"), ordering="price_minor")
    def price(self, product: Product) -> str:
        return money(product.price_minor, product.currency)

    def get_readonly_fields(self, request: HttpRequest, obj: Product | None = None) -> tuple[str, ...]:
        return () if obj is None else ("sku", "units", "version")

    def get_fields(self, request: HttpRequest, obj: Product | None = None) -> Any:
        shown = ("sku", "name", "description", "picture", "price_minor", "currency", "flash_only")
        if obj is None:
            return (*shown, "stock", "strategy", "segments")
        return (*shown, "units", "stock_difference", "strategy", "segments", "version")

    def has_delete_permission(self, request: HttpRequest, obj: Product | None = None) -> bool:
        return False  # orders refer to it

    def save_model(self, request: HttpRequest, obj: Product, form: Any, change: bool) -> None:
        """Write only what was edited, and only over what the editor saw."""
        if not change:
            with transaction.atomic():
                super().save_model(request, obj, form, change)
                self._arrange(obj, form)
                window.tell()
            return
        edited = [name for name in form.changed_data if name in catalog.EDITABLE]
        with transaction.atomic():
            if edited and not catalog.edit_product(
                product_id=obj.pk,
                before={name: form.initial[name] for name in edited},
                after={name: form.cleaned_data[name] for name in edited},
            ):
                messages.error(
                    request, _("Somebody else edited this product meanwhile; your texts were not saved.")
                )
            self._arrange(obj, form)
            difference = form.cleaned_data.get("stock_difference") or 0
            if difference and not stock.adjust(product_id=obj.pk, difference=difference):
                messages.error(request, _("There are fewer units than you take away; the stock was not changed."))

    def _arrange(self, product: Product, form: Any) -> None:
        """Have its units taken as the form says, if that is something else than the editor saw."""
        wanted = {name: form.cleaned_data[name] or form.initial[name] for name in ("strategy", "segments")}
        if wanted != {name: form.initial[name] for name in wanted}:
            stock.arrange(product_id=product.pk, **wanted)


class OrderItemInline(admin.TabularInline):  # type: ignore[type-arg]
    """The items of an order, as bought."""

    model = OrderItem
    fields = ("sku", "name", "quantity", "price", "subtotal")
    readonly_fields = fields
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.display(description=_("price"))
    def price(self, item: OrderItem) -> str:
        return money(item.price_minor, item.order.currency)

    @admin.display(description=_("subtotal"))
    def subtotal(self, item: OrderItem) -> str:
        return money(item.subtotal_minor, item.order.currency)


class ReadOnlyAdmin(ledger_admin.ReadOnlyAdmin):
    """As the ledger's: seen, never written, for the domain modules are the only writers. It may be sorted."""

    sortable_by: ClassVar[tuple[str, ...] | None] = None
    list_per_page = 100


@admin.register(Order)
class OrderAdmin(WholeTermSearch, ReadOnlyAdmin):
    """Orders by status and time; the search takes an order number, a user name or a SKU."""

    list_display = ("number", "status", "user", "total", "created_at", "paid_at", "closed_at", "version")
    list_filter = (Opened, newest("status", OrderStatus.choices))
    list_select_related = ("user",)
    sortable_by = ()  # by a column without an index, PostgreSQL would sort the whole table
    search_fields = ("id",)
    search_help_text = _("a whole order number or user name, or of the newest orders a whole SKU")
    ordering = ("-id",)
    inlines = (OrderItemInline,)
    fields = (
        "number",
        "status",
        "user",
        "total",
        "payment",
        "note",
        "created_at",
        "expires_at",
        "closing_at",
        "paid_at",
        "closed_at",
        "version",
    )
    readonly_fields = fields

    @admin.display(description=_("number"), ordering="id")
    def number(self, order: Order) -> str:
        return order.id.hex

    @admin.display(description=_("total"), ordering="total_minor")
    def total(self, order: Order) -> str:
        return money(order.total_minor, order.currency)

    @admin.display(description=_("payment"))
    def payment(self, order: Order) -> SafeString | str:
        payment_id = orders.payment_ids(order_ids=[order.id]).get(order.id)
        if payment_id is None:
            return "-"
        return format_html('<a href="../../../../payments/payment/{}/change/">{}</a>', payment_id, payment_id.hex)

    def search(self, rows: QuerySet[Order], term: str) -> QuerySet[Order]:
        """An order number, with or without dashes, finds exactly that order; nothing reads the whole table."""
        try:
            return rows.filter(pk=uuid.UUID(term))
        except ValueError:
            pass
        items = searching.newest(OrderItem.objects.all()).filter(sku=term)
        of_user = searching.numbers_of(rows.filter(user_id__in=_users(term)), "user_id", "-id")
        with_sku = searching.numbers_among_newest(rows, Q(pk__in=items.values("order_id")))
        return rows.filter(pk__in=of_user | with_sku)


@admin.register(Like)
class LikeAdmin(WholeTermSearch, ReadOnlyAdmin):
    """Who likes what."""

    list_display = ("product", "user", "created_at")
    list_filter = ("product",)
    list_select_related = ("product", "user")
    search_fields = ("user",)
    search_help_text = _("a whole user name or SKU")

    def search(self, rows: QuerySet[Like], term: str) -> QuerySet[Like]:
        products = list(Product.objects.filter(sku=term).values_list("pk", flat=True))
        return rows.filter(Q(user_id__in=_users(term)) | Q(product_id__in=products))


@admin.register(FlashSale)
class FlashSaleAdmin(ReadOnlyAdmin):
    """What is, was and will be sold to few. A new one can be announced; what was announced is not changed."""

    list_display = ("product", "starts_at", "ends_at", "units", "sold", "version")
    list_filter = ("product",)
    list_select_related = ("product",)
    search_fields = ("product__sku",)
    date_hierarchy = "starts_at"
    fields = ("product", "units", "starts_at", "ends_at")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        return super().formfield_for_foreignkey(
            db_field, request, **kwargs | {"queryset": Product.objects.filter(flash_only=True)}
        )

    def save_model(self, request: HttpRequest, obj: FlashSale, form: Any, change: bool) -> None:
        told = {name: form.cleaned_data[name] for name in ("units", "starts_at", "ends_at")}
        obj.pk = flashsale.announce(product_id=obj.product_id, **told).pk


@admin.register(FlashSalePurchase)
class FlashSalePurchaseAdmin(WholeTermSearch, ReadOnlyAdmin):
    """Who bought, in the order of arrival."""

    list_display = ("sale", "place", "buyer", "order", "bought_at", "returned_at")
    list_filter = ("sale", ("returned_at", admin.EmptyFieldListFilter))
    list_select_related = ("sale", "buyer", "order")
    search_fields = ("buyer",)
    search_help_text = _("a whole user name or SKU")
    ordering = ("sale", "place", "pk")

    def search(self, rows: QuerySet[FlashSalePurchase], term: str) -> QuerySet[FlashSalePurchase]:
        sales = list(FlashSale.objects.filter(product__sku=term).values_list("pk", flat=True))
        return rows.filter(Q(buyer_id__in=_users(term)) | Q(sale_id__in=sales))


@admin.register(Campaign)
class CampaignAdmin(ReadOnlyAdmin):
    """Coupon campaigns and how far they are drawn."""

    list_display = ("slug", "name", "coupons_drawn", "coupons_left", "created_at")
    search_fields = ("slug", "name")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Campaign]:
        drawn = Count("coupons", filter=Q(coupons__drawn_by__isnull=False))
        campaigns: QuerySet[Campaign] = super().get_queryset(request)
        return campaigns.annotate(all_coupons=Count("coupons"), drawn_coupons=drawn)

    @admin.display(description=_("drawn"))
    def coupons_drawn(self, campaign: Any) -> int:
        return int(campaign.drawn_coupons)

    @admin.display(description=_("left"))
    def coupons_left(self, campaign: Any) -> int:
        return int(campaign.all_coupons - campaign.drawn_coupons)


@admin.register(Coupon)
class CouponAdmin(WholeTermSearch, ReadOnlyAdmin):
    """Drawn coupons with their users, and free ones, whose code nobody needs to see."""

    list_display = ("number", "campaign", "shown_code", "drawn_by", "drawn_at")
    list_filter = ("campaign", ("drawn_at", admin.EmptyFieldListFilter))
    list_select_related = ("campaign", "drawn_by")
    search_fields = ("code",)
    search_help_text = _("a whole user name or code")
    fields = ("number", "campaign", "shown_code", "drawn_by", "drawn_at")
    readonly_fields = fields

    @admin.display(description=_("number"), ordering="pk")
    def number(self, coupon: Coupon) -> int:
        return coupon.pk

    @admin.display(description=_("code"))
    def shown_code(self, coupon: Coupon) -> str:
        return "-" if coupon.drawn_by_id is None else coupon.code

    def search(self, rows: QuerySet[Coupon], term: str) -> QuerySet[Coupon]:
        return rows.filter(Q(drawn_by_id__in=_users(term)) | Q(code=term.upper()))


def _users(name: str) -> list[int]:
    """Ids: looked up first, so that a search over several columns has an index for each."""
    return list(get_user_model().objects.filter(username=name).values_list("pk", flat=True))
