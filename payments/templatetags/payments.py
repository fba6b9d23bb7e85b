"""Template tags for an admin: the operator's desk on its start page, and counts in its navigation."""

from typing import Any

from django import template

from payments.admin import desk

register = template.Library()


@register.inclusion_tag("admin/payments/queue.html", takes_context=True)
def payments_desk(context: template.Context) -> dict[str, Any]:
    """Show work that waits for a person, and the channels' last two days; needs `request` in the context."""
    return {"perms": context["perms"], **desk.context(context["request"])}


@register.simple_tag(takes_context=True)
def payments_counts(context: template.Context) -> str:
    """Write what waits behind the names of the lists; stands in `nav-sidebar`, before `block.super`."""
    desk.count_in_navigation(context["request"], context["available_apps"])
    return ""
