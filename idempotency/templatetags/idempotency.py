"""Template tag `{% idempotency_token %}`: the hidden field that makes a form count once."""

from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from django import template
from django.db.models import Model
from django.utils.html import format_html
from django.utils.safestring import SafeString

from idempotency.protocol import tokens
from idempotency.request.keys import FORM_FIELD

register = template.Library()

ALONE = object()


@register.simple_tag(takes_context=True)
def idempotency_token(context: template.Context, intent: Any = ALONE) -> SafeString:
    """Issue a one-time token for the visitor; needs `request` in the context.

    Args:
        intent: the purpose that all open pages of the form share, which have one effect together: an instance of
            a model, or a text or number that no other form of this visitor has. Without it the token counts alone.

    Raises:
        ValueError: the intent is empty or an instance that is not saved: each page would count alone. Or another
            object, such as the form, which may be the same text on pages of another purpose.
    """
    purpose = "" if intent is ALONE else _purpose(intent)
    token = tokens.issue_for_page(context["request"], intent=purpose)
    return format_html('<input type="hidden" name="{}" value="{}">', FORM_FIELD, token)


def _purpose(intent: Any) -> str:
    named = intent
    if isinstance(intent, Model):
        named = None if intent._state.adding else f"{intent._meta.label} {intent.pk}"
    is_value = isinstance(named, (str, int, Decimal, UUID, date)) and not isinstance(named, bool)
    if not is_value or named == "":
        raise ValueError(
            f"{{% idempotency_token intent=… %}} got {intent!r}. Give it a saved instance, a text or a "
            "number that is the same on every page of this form, or leave `intent` out."
        )
    return str(named)
