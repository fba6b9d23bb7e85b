"""System checks: each names a mistake and what to write; an import registers them."""

from idempotency.checks import callers, ledger, methods, settings, start, views

__all__ = ["callers", "ledger", "methods", "settings", "start", "views"]
