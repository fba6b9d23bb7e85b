"""What gunicorn itself logs, in the form of all other lines (`shop.platform.logs`)."""

from typing import Any

from gunicorn import glogging

from shop.platform.logs import json_formatter


class Logger(glogging.Logger):  # type: ignore[misc]  # gunicorn has no types
    """For gunicorn's `logger_class`; a `logconfig_dict` would have it reckon an access line for each request."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(json_formatter())
