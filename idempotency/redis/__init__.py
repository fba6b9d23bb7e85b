"""Redis as the fast path: markers before the ledger, scripts, one subscriber a process.

Nothing here decides: with Redis flushed, slow or away the callers work on the database alone.
Used by protocol, locks, `cachedmap` and maintenance; projects use `fastpath` and `paid_marker`.
"""
