"""Which lines of libraries the shop's log has."""

import logging

import pytest

from shop.platform.logs import JobsFilter


@pytest.mark.parametrize(
    ("logger", "level", "error", "is_logged"),
    [
        ("procrastinate.worker", logging.INFO, None, False),
        ("procrastinate.worker.named", logging.INFO, None, False),
        ("procrastinate.worker", logging.INFO, ConnectionRefusedError(), True),  # a job that is retried for hours
        ("procrastinate.worker", logging.ERROR, None, True),
        ("shop.tasks", logging.INFO, None, True),
    ],
)
def test_of_the_queue_s_lines_errors_alone_are_logged(
    logger: str, level: int, error: Exception | None, is_logged: bool
) -> None:
    info = None if error is None else (type(error), error, None)
    record = logging.LogRecord(logger, level, __file__, 1, "Job ended", None, info)
    assert JobsFilter().filter(record) == is_logged
