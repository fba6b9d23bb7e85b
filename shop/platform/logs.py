"""Log lines as JSON objects, with the request's id, key digest and subject."""

import logging

import structlog
from structlog.typing import EventDict, WrappedLogger

from idempotency.response.redaction import without_details

# fields that `extra=` and the context filter add to a LogRecord
_CARRIED = ("request_id", "key_digest", "subject")


def json_formatter() -> logging.Formatter:
    """Make the formatter of every logger's lines, ours and those of libraries.

    Members: `timestamp` (ISO 8601, UTC), `level`, `logger`, `event`, those of `request_id`, `key_digest` and
    `subject` that are known, and `exception` where there is one. PostgreSQL's details of an error are left out:
    they repeat values of keys and payers.
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
    """Log a refusal of Django as one line: a traceback would show the caller's fault as ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "status_code", 500) < 500:
            record.exc_info = record.exc_text = None
        return True


class JobsFilter(logging.Filter):
    """Drop the queue's lines of INFO, but keep the error of a job that is retried."""

    def filter(self, record: logging.LogRecord) -> bool:
        goes_well = record.levelno <= logging.INFO and not record.exc_info
        return not (goes_well and record.name.startswith("procrastinate"))


def _cut_details(logger: WrappedLogger, method: str, line: EventDict) -> EventDict:
    for name in ("event", "exception"):
        if isinstance(line.get(name), str):
            line[name] = without_details(line[name])
    return line
