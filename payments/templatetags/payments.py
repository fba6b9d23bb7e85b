"""Template tags: a payment's next action; the operator's desk and counts."""

from typing import Any, cast

from django import template
from django.template.loader import render_to_string

from payments.admin import desk
from payments.channels import configured
from payments.models import Attempt

register = template.Library()


@register.inclusion_tag("admin/payments/queue.html", takes_context=True)
def payments_desk(context: template.Context) -> dict[str, Any]:
    """Show work that waits for a person, and the last two days; needs `request`."""
    return {"perms": context["perms"], **desk.context(context["request"])}


@register.simple_tag(takes_context=True)
def payments_counts(context: template.Context) -> str:
    """Count waiting work behind the lists' names, in `nav-sidebar`, before `block.super`."""
    desk.count_in_navigation(context["request"], context["available_apps"])
    return ""


@register.simple_tag(takes_context=True)
def next_action(context: template.Context, attempt: Attempt) -> str:
    """Show an open attempt's next action, by the renderer of its kind; else nothing."""
    action = attempt.next_action
    page = action and configured.renderer(attempt.account, action.type).page
    if not action or not page:
        return ""
    if callable(page):
        return page(action)
    around = cast("dict[str, Any]", context.flatten())
    return render_to_string(page, {**around, "action": action})
