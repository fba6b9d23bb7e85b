"""Payments in Django admin, for people who review money.

Nothing is edited. Each act of an operator has a permission of its own, is confirmed in words first, wants a
reason and leaves an audit line (`payments.operations.actions`). Payers are never shown. With
`admin.site.index_template = "admin/payments/desk.html"` the start page opens with the operator's desk; with
`{% block nav-sidebar %}{% payments_counts %}{{ block.super }}{% endblock %}` in the project's
`admin/base_site.html` every page counts what waits.
"""

from django.apps import apps

from idempotency.admin.labels import translate_names
from payments.admin import anomalies, bills, books, deliveries, notifications, payment, rows

translate_names(apps.get_app_config("payments"))

__all__ = ["anomalies", "bills", "books", "deliveries", "notifications", "payment", "rows"]
