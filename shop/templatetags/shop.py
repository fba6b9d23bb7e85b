"""Tags and filters of the shop's templates: money, drawings, tokens, kind of site."""

from decimal import Decimal
from typing import Any

from django import template
from django.conf import settings
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext

from idempotency.protocol import tokens
from payments.money import EXPONENTS
from shop.models import Product
from shop.orders import basket
from shop.web.forms import channels_for

register = template.Library()

_SYMBOLS = {"CNY": "¥", "USD": "$", "EUR": "€", "GBP": "£"}


@register.filter
def money(amount_minor: int, currency: str = "CNY") -> str:
    """Write 1990 of CNY as ``¥19.90``, and a currency without a symbol here with its code."""
    digits = EXPONENTS.get(currency, 2)
    amount = f"{Decimal(amount_minor).scaleb(-digits):,.{digits}f}"
    return f"{_SYMBOLS[currency]}{amount}" if currency in _SYMBOLS else f"{currency} {amount}"


@register.filter
def percent_off(percent: int) -> str:
    """Write a discount: ``15% off``, in Chinese as the tenths that are left."""
    return gettext("%(percent)s%% off") % {"percent": percent, "tenths": f"{(100 - percent) / 10:g}"}


@register.filter
def clock(milliseconds: int) -> str:
    """Write 3,723,000 as ``01:02:03``, with days in front where there are any."""
    seconds = milliseconds // 1000
    days, hours = divmod(seconds // 3600, 24)
    left = f"{hours:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if not days:
        return left
    return ngettext("%(days)d day", "%(days)d days", days) % {"days": days} + f" {left}"


@register.simple_tag(takes_context=True)
def basket_count(context: template.Context) -> int:
    """Count the units in the visitor's basket; 0 without a session."""
    session = getattr(context.get("request"), "session", None)
    return sum(basket.contents(session).values()) if session is not None else 0


@register.simple_tag
def basket_field(form: Any, kind: str, sku: str) -> Any:
    name = f"{kind}.{sku}"
    return form[name] if name in form.fields else {"value": None}


@register.simple_tag(takes_context=True)
def one_time_token(context: template.Context) -> str:
    """Issue a token alone, for a button with another intent than its form's."""
    return tokens.issue_for_page(context["request"])


@register.simple_tag
def product_art(picture: str, css_class: str = "") -> SafeString:
    """Render a product's symbol; decoration, so hidden from screen readers."""
    name = picture if picture in Product.Picture.values else Product.Picture.PARCEL.value
    return format_html(
        '<span class="art art-{} {}">'
        '<svg aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg></span>',
        name,
        css_class,
        static("shop/art.svg"),
        name,
    )


@register.simple_tag
def ways_to_pay(currency: str) -> str:
    """Name the channels that take this currency here."""
    return " · ".join(str(label) for _, label in channels_for(currency))


@register.simple_tag
def demo_logins() -> bool:
    """Return whether demo users may exist here, for the login page to name."""
    return bool(settings.DEBUG)


@register.simple_tag
def test_mode() -> bool:
    """Return whether the channels point at the sandbox: no real money moves."""
    return bool(settings.SANDBOX_URL)
