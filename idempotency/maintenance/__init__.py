"""Work on the ledger between requests: remove, complete, resolve, abandon, log.

Never in a request's way: bounded batches, callable any number of times at once. Commands, timers and the admin
come in; `complete_stalled`, `reap` and `resolve_known` are public. In a suite on SQLite, with ``ENABLED`` False,
the first two do nothing but log that.
"""

from idempotency.maintenance.completer import complete_stalled
from idempotency.maintenance.decisions import resolve_known
from idempotency.maintenance.reaper import reap

__all__ = ["complete_stalled", "reap", "resolve_known"]
