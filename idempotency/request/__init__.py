"""Reading of a keyed request: its caller, its key, its content.

Pure but for the caller's session. Never: the ledger, Redis, an answer. Used by every room above it.
"""
