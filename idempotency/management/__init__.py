"""Commands of the ledger: each calls `maintenance` or `ledger`, and has no rules of its own.

Only a terminal comes in.
"""
