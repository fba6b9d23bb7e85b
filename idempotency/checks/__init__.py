"""System checks: each names a mistake in the project's settings, views or ledger and what to write instead.

Registered when the app is ready, which imports the modules.
"""

from idempotency.checks import callers, ledger, methods, settings, start, views

__all__ = ["callers", "ledger", "methods", "settings", "start", "views"]
