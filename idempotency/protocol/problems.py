"""Problems that exceptions mean for the caller."""

import logging

from django.core.exceptions import RequestDataTooBig

from idempotency.errors import Problem, answer_sealed, payload_too_large
from idempotency.postgres.availability import outage
from idempotency.response.encryption import EncryptionError

log = logging.getLogger("idempotency")


def problem_of(exception: BaseException | None) -> Problem | None:
    """Return the problem that an exception means; None if it is a fault of the program."""
    if isinstance(exception, Problem):
        return exception
    if (away := outage(exception)) is not None:
        return away
    if isinstance(exception, RequestDataTooBig):
        return payload_too_large()
    if isinstance(exception, EncryptionError):
        log.error("A replay is 503: %s", exception)
        return answer_sealed()
    return None
