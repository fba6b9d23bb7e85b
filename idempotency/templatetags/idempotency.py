"""Template tag `{% idempotency_token %}`: the hidden field that makes a form count once."""

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from idempotency.protocol import tokens
from idempotency.request.principal import principal_of

register = template.Library()


@register.simple_tag(takes_context=True)
def idempotency_token(context: template.Context) -> SafeString:
    """Issue a one-time token for the visitor; needs `request` in the context."""
    request: Any = context["request"]
    token = tokens.issue(principal_of(request)).token
    return format_html('<input type="hidden" name="idempotency_token" value="{}">', token)
