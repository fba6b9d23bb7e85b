"""Detection of transactions that PostgreSQL ended for the sake of others: run again, they may commit."""

# source: PostgreSQL 17, appendix A, "Error codes"; section 13.5, "Serialization Failure Handling" (September 2024)
_CONFLICTS = {"40001": "serialization", "40P01": "deadlock"}


def conflict(error: BaseException | None) -> str:
    """Name the conflict that an error, or what caused it, reports; empty for any other error."""
    while error is not None:
        if found := _CONFLICTS.get(getattr(error, "sqlstate", None) or ""):
            return found
        error = error.__cause__
    return ""
