"""System checks: each names a mistake in the project's settings, views or ledger and what to write instead.

Registered when the app is ready, which imports the modules.
"""

from idempotency.checks import callers, history, ledger, methods, prefixes, settings, start, views, webhooks

__all__ = ["callers", "history", "ledger", "methods", "prefixes", "settings", "start", "views", "webhooks"]
