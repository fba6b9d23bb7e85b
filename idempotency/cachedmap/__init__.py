"""`CachedMap`: values by key in Redis, with copies in each process. Public: `CachedMap`, `Entry` and `Change`.

Never holds what a decision needs: a copy may be a moment old, and Redis may forget.
"""

from idempotency.cachedmap.changes import Change
from idempotency.cachedmap.map import CachedMap, Entry

__all__ = ["CachedMap", "Change", "Entry"]
