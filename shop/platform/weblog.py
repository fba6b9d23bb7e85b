"""Gunicorn's own log lines, in the form of all others (`shop.platform.logs`)."""

from typing import Any

from gunicorn import glogging

from shop.platform.logs import json_formatter


class Logger(glogging.Logger):  # type: ignore[misc]  # gunicorn has no types
    """Gunicorn's `logger_class`, which builds an access line for logged requests only."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(json_formatter())
