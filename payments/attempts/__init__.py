"""Attempts: open a trade at a provider under our number, ask about it, close it.

Never: a call inside a transaction. Used by every room above it.
"""
