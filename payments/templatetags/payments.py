"""Template tag `{% payments_desk %}`: the operator's desk, for an admin's start page."""

from typing import Any

from django import template

from payments.admin import desk

register = template.Library()


@register.inclusion_tag("admin/payments/queue.html", takes_context=True)
def payments_desk(context: template.Context) -> dict[str, Any]:
    """Show work that waits for a person, and the channels' last two days; needs `request` in the context."""
    return {"perms": context["perms"], **desk.context(context["request"])}
