"""`CachedMap`: values by key in Redis, with copies in each process. Public: `CachedMap` and `Entry`.

Never holds what a decision needs: a copy may be a moment old, and Redis may forget.
"""

from idempotency.cachedmap.map import CachedMap, Entry

__all__ = ["CachedMap", "Entry"]
