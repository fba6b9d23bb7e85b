"""Redis as the fast path: markers in front of the ledger, scripts, and one subscriber thread a process.

Nothing here decides: with Redis flushed, slow or away the callers work on the database alone.
Used by protocol, locks and maintenance; projects use `fastpath`, `script` and `paid_marker`.
"""
