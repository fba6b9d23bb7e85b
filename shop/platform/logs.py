"""One JSON object a log line, with what the request's context knows: its id, key digest, subject."""

import logging

import structlog
from structlog.typing import EventDict, WrappedLogger

from idempotency.response.redaction import without_details

# what a LogRecord carries for its own use; `extra=` and the context filter add to these
_CARRIED = ("request_id", "key_digest", "subject")


def json_formatter() -> logging.Formatter:
    """For `LOGGING`: every logger's lines, ours and those of libraries, in one form.

    Members: `timestamp` (ISO 8601, UTC), `level`, `logger`, `event`, those of `request_id`, `key_digest` and
    `subject` that are known, and `exception` where there is one. What PostgreSQL told of an error beside its first
    line is left out: it repeats values of keys and payers.
    """
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(allow=_CARRIED),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _cut_details,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
    )


class RefusalFilter(logging.Filter):
    """Log what Django refuses as one line: a traceback would show a fault of the caller as one of ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True; a record of `django.request` below status 500 loses its traceback."""
        if getattr(record, "status_code", 500) < 500:
            record.exc_info = record.exc_text = None
        return True


def _cut_details(logger: WrappedLogger, method: str, line: EventDict) -> EventDict:
    for name in ("event", "exception"):
        if isinstance(line.get(name), str):
            line[name] = without_details(line[name])
    return line
