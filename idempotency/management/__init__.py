"""Commands of the ledger, thin shells over `maintenance` and `ledger`.

Only a terminal comes in.
"""
