"""Orders, likes, sales and coupons in the admin, read only but for announcing sales."""

import uuid
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, User
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from rest_framework.authtoken.models import TokenProxy

from idempotency.admin import searching
from idempotency.admin.filters import Opened, newest
from idempotency.admin.pages import COUNTED_MAX, ReadOnlyAdmin, column, time_of
from idempotency.admin.searching import WholeTermSearch
from payments.admin.badges import STATUS, badge
from payments.admin.find import by_short_number
from payments.admin.pages import shortened
from payments.display import money
from shop import sales as flashsale
from shop.admin.products import AddedOnce, FlashSaleForm, ProductAdmin
from shop.admin.users import AccountAdmin, RolesAdmin
from shop.models import (
    Campaign,
    Coupon,
    FlashSale,
    FlashSalePurchase,
    Like,
    Order,
    OrderItem,
    OrderStatus,
    Product,
)
from shop.orders import placing as orders
from shop.web.refundview import badges_of

admin.site.site_header = "PayOnce"
admin.site.site_title = "PayOnce"
admin.site.index_title = _("Shop, payments and ledger")
admin.site.index_template = "admin/payments/desk.html"
# its pages show API tokens in full: `manage.py drf_create_token` makes one, and the list of users ends it
if admin.site.is_registered(TokenProxy):
    admin.site.unregister(TokenProxy)
for model, own in ((User, AccountAdmin), (Group, RolesAdmin)):
    if admin.site.is_registered(model):
        admin.site.unregister(model)
    admin.site.register(model, own)

admin.site.register(Product, ProductAdmin)


class OrderItemInline(admin.TabularInline):  # type: ignore[type-arg]
    model = OrderItem
    fields = ("sku", "name", "quantity", "price", "subtotal")
    readonly_fields = fields
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    price = column(lambda item: money(item.price_minor, item.order.currency), _("price"))
    subtotal = column(lambda item: money(item.subtotal_minor, item.order.currency), _("subtotal"))


class ShopAdmin(ReadOnlyAdmin):
    """Base of read-only pages."""

    list_per_page = 100

    class Media:
        css: ClassVar[Any] = {"all": ["payments/admin.css"]}


@admin.register(Order)
class OrderAdmin(WholeTermSearch, ShopAdmin):
    """Orders by status and time; the search takes an order number, a user name or a SKU."""

    list_display = (
        "short_number",
        "state",
        "user",
        "total",
        *map(time_of, ("created_at", "paid_at", "closed_at")),
    )
    list_filter = (Opened, newest("status", OrderStatus.choices))
    list_select_related = ("user",)
    search_fields = ("id",)
    search_help_text = _("a whole order number or user name, or of the newest orders a short number or whole SKU")
    is_found_by_desk = True
    ordering = ("-id",)
    inlines = (OrderItemInline,)
    fields = (
        "number",
        "state",
        "user",
        "total",
        "payment",
        "note",
        *map(time_of, ("created_at", "expires_at", "closing_at", "paid_at", "closed_at")),
        "version",
    )

    short_number = column(
        lambda order: format_html('<span title="{}">{}</span>', order.id.hex, order.short_number), _("number")
    )
    number = column(lambda order: order.id.hex, _("number"))
    total = column(lambda order: money(order.total_minor, order.currency), _("total"))

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        listed = super().get_changelist_instance(request)
        listed.result_list = list(listed.result_list)
        badges = badges_of(listed.result_list)  # one query for the page, not one a row
        for order in listed.result_list:
            order.badge = badges[order.id]
        return listed

    @admin.display(description=STATUS)
    def state(self, order: Order) -> SafeString:
        """Show the status as the shopper's own list does, with the latest refund of a paid order."""
        return badge(*(getattr(order, "badge", None) or badges_of([order])[order.id]))

    @admin.display(description=_("payment"))
    def payment(self, order: Order) -> SafeString | str:
        payment_id = orders.payment_ids(order_ids=[order.id]).get(order.id)
        if payment_id is None:
            return "-"
        return format_html('<a href="../../../../payments/payment/{}/change/">{}</a>', payment_id, payment_id.hex)

    def search(self, rows: QuerySet[Order], term: str) -> QuerySet[Order]:
        """Find an order by its number, with or without dashes; nothing reads the whole table."""
        try:
            return rows.filter(pk=uuid.UUID(term))
        except ValueError:
            pass
        items = searching.newest(OrderItem.objects.all()).filter(sku=term)
        of_user = searching.numbers_of(rows.filter(user_id__in=_users(term)), "user_id", "-id")
        with_sku = searching.numbers_among_newest(rows, Q(pk__in=items.values("order_id")))
        return rows.filter(pk__in=of_user | with_sku | by_short_number(rows, term))


@admin.register(Like)
class LikeAdmin(WholeTermSearch, ShopAdmin):
    list_display = ("product", "user", time_of("created_at"))
    fields = list_display
    list_filter = ("product",)
    list_select_related = ("product", "user")
    search_fields = ("user",)
    search_help_text = _("a whole user name or SKU")

    def search(self, rows: QuerySet[Like], term: str) -> QuerySet[Like]:
        products = list(Product.objects.filter(sku=term).values_list("pk", flat=True))
        return rows.filter(Q(user_id__in=_users(term)) | Q(product_id__in=products))


@admin.register(FlashSale)
class FlashSaleAdmin(AddedOnce, ShopAdmin):
    """Flash sales; a new one can be announced, none changed."""

    form = FlashSaleForm
    list_display = ("product", time_of("starts_at"), time_of("ends_at"), "units", "sold", "version")
    list_filter = ("product",)
    list_select_related = ("product",)
    search_fields = ("product__sku",)
    date_hierarchy = "starts_at"
    linked = ("starts_at__gte", "starts_at__lt")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return FlashSaleForm.Meta.fields if obj is None else self.list_display

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        return super().formfield_for_foreignkey(
            db_field, request, **kwargs | {"queryset": Product.objects.filter(flash_only=True)}
        )

    def save_model(self, request: HttpRequest, obj: FlashSale, form: Any, change: bool) -> None:
        announced = {
            name: form.cleaned_data[name] for name in ("units", "former_price_minor", "starts_at", "ends_at")
        }
        obj.pk = flashsale.announce(product_id=obj.product_id, **announced).pk


class OfSale(admin.RelatedFieldListFilter):
    """Filter by sale, with all sales and their products in one statement."""

    def field_choices(self, field: Any, request: HttpRequest, model_admin: Any) -> Any:
        return [(str(sale.pk), str(sale)) for sale in FlashSale.objects.select_related("product")]


@admin.register(FlashSalePurchase)
class FlashSalePurchaseAdmin(WholeTermSearch, ShopAdmin):
    list_display = ("sale", "place", "buyer", "short_order", time_of("bought_at"), time_of("returned_at"))
    fields = ("sale", "place", "buyer", "order", time_of("bought_at"), time_of("returned_at"))
    list_filter = (("sale", OfSale), ("returned_at", admin.EmptyFieldListFilter))
    list_select_related = ("sale__product", "buyer")
    search_fields = ("buyer",)
    search_help_text = _("a whole user name or SKU")
    ordering = ("-sale_id", "place", "pk")  # not by a column of the sale: an index gives one sale after the other

    short_order = column(lambda purchase: shortened(purchase.order_id), _("order"))

    def search(self, rows: QuerySet[FlashSalePurchase], term: str) -> QuerySet[FlashSalePurchase]:
        sales = list(FlashSale.objects.filter(product__sku=term).values_list("pk", flat=True))
        return rows.filter(Q(buyer_id__in=_users(term)) | Q(sale_id__in=sales))


@admin.register(Campaign)
class CampaignAdmin(ShopAdmin):
    """Coupon campaigns; the page of one counts its coupons."""

    list_display = ("slug", "name", "name_zh", "percent_off", time_of("created_at"))
    search_fields = ("slug", "name", "name_zh")
    fields = (*list_display, "coupons_drawn", "coupons_left")

    coupons_drawn = column(lambda campaign: _counted(campaign, drawn=True), _("drawn"))
    coupons_left = column(lambda campaign: _counted(campaign, drawn=False), _("left"))


@admin.register(Coupon)
class CouponAdmin(WholeTermSearch, ShopAdmin):
    """Drawn coupons with their users, and free ones, with the code hidden."""

    list_display = ("number", "campaign", "shown_code", "drawn_by", time_of("drawn_at"))
    list_filter = ("campaign", ("drawn_at", admin.EmptyFieldListFilter))
    list_select_related = ("campaign", "drawn_by")
    search_fields = ("code",)
    search_help_text = _("a whole user name or code")
    fields = list_display

    number = column(lambda coupon: coupon.pk, _("number"), ordering="pk")
    shown_code = column(lambda coupon: "-" if coupon.drawn_by_id is None else coupon.code, _("code"))

    def search(self, rows: QuerySet[Coupon], term: str) -> QuerySet[Coupon]:
        return rows.filter(Q(drawn_by_id__in=_users(term)) | Q(code=term.upper()))


def _users(name: str) -> list[int]:
    """Look ids up first, so that a search over several columns has an index for each."""
    return list(get_user_model().objects.filter(username=name).values_list("pk", flat=True))


def _counted(campaign: Campaign, *, drawn: bool) -> str:
    """Count coupons by one of two partial indexes, up to `COUNTED_MAX`."""
    rows = Coupon.objects.order_by().filter(campaign=campaign, drawn_by__isnull=not drawn)
    count = rows[: COUNTED_MAX + 1].count()
    return f"> {COUNTED_MAX}" if count > COUNTED_MAX else str(count)
