"""`CachedMap`: values by key in Redis, with copies in each process.

Never holds what a decision needs: a copy may be a moment old, and Redis may forget.
"""

from idempotency.cachedmap.changes import Change
from idempotency.cachedmap.in_redis import Entry
from idempotency.cachedmap.map import CachedMap

__all__ = ["CachedMap", "Change", "Entry"]
