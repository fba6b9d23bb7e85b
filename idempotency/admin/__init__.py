"""The ledger in Django admin.

Everything can be seen, nothing edited; an operator's decision is confirmed first and logged.
"""

from idempotency.admin import ledger

__all__ = ["ledger"]
