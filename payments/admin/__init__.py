"""Payments in Django admin, for people who review money.

Everything is to be seen and nothing to be edited. What a person may do, each under a permission of its own, is
confirmed in words first, wants a reason and leaves an audit line (`payments.operations.actions`). Who paid is
not shown.
"""

from payments.admin import anomalies, audit, bills, books, facts, notifications, payment, rows

__all__ = ["anomalies", "audit", "bills", "books", "facts", "notifications", "payment", "rows"]
