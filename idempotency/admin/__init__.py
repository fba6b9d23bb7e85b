"""Django admin of the ledger, and what read-only pages of the apps above share.

Nothing is edited here; an operator's one decision goes through `idempotency.maintenance`.
Pages of `payments` and `shop` build on `pages`, `filters`, `searching` and `labels`.
"""

from django.apps import apps

if apps.is_installed("django.contrib.admin"):  # the commands search the ledger also without it
    from idempotency.admin import labels, ledger, webhooks

    labels.translate_names(apps.get_app_config("idempotency"))

    __all__ = ["ledger", "webhooks"]
