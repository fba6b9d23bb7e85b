"""`python -m payments.sandbox --port 8001 --data-dir DIR`: run the sandbox until it is told to stop."""

import argparse
import os
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication

THREADS = 32


class Sandbox(BaseApplication):  # type: ignore[misc]
    """gunicorn with one process of many threads: the delivery thread must exist once."""

    def __init__(self, *, port: int, folder: Path, shop: str) -> None:
        self.port = port
        self.folder = folder
        self.shop = shop
        super().__init__()

    def load_config(self) -> None:
        options: dict[str, Any] = {
            "bind": f"127.0.0.1:{self.port}",
            "workers": 1,
            "worker_class": "gthread",
            "threads": THREADS,
            "keepalive": 15,
            "loglevel": "warning",
            "control_socket_disable": True,
            "post_worker_init": _start_delivery,
        }
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """The WSGI application, in the worker process."""
        from payments.sandbox import faults, state  # noqa: PLC0415  after Django's settings are chosen

        state.open_folder(self.folder, shop=self.shop)
        faults.seed_dice()
        from django.core.wsgi import get_wsgi_application  # noqa: PLC0415

        return get_wsgi_application()


def _start_delivery(worker: Any) -> None:
    from payments.sandbox import delivery  # noqa: PLC0415

    delivery.start()


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m payments.sandbox")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--data-dir", type=Path, required=True, help="keys and store; made if missing")
    parser.add_argument("--shop", default="", help="address of the shop, to be led from to a page that is paid")
    given = parser.parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = "payments.sandbox.settings"
    Sandbox(port=given.port, folder=given.data_dir, shop=given.shop).run()


if __name__ == "__main__":
    main()
