"""Answers as they are stored: reduced, redacted, encrypted, and replayed.

Never: the ledger, Redis, a request. Used by every room above it.
"""
