"""Attempts: opening a trade at a provider under our own number, asking about it and closing it there.

Never: a call inside a transaction. Used by every room above it.
"""
