"""Run the sandbox: `python -m payments.sandbox --port 8001 --data-dir DIR`."""

import argparse
import os
import signal
import sys
from pathlib import Path


def serve(*, port: int, folder: Path, shop: str) -> None:
    """Serve from one process, so that one thread sends notifications. Never returns."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "payments.sandbox.settings"
    from django.core.wsgi import get_wsgi_application  # noqa: PLC0415  after Django's settings are chosen

    application = get_wsgi_application()
    from payments.sandbox import delivery, faults, state  # noqa: PLC0415
    from payments.sandbox.server import Server  # noqa: PLC0415

    state.open_folder(folder, shop=shop)
    faults.seed_dice()
    server = Server(port, application)
    delivery.start()
    server.serve_for_ever()


def main() -> None:
    # What is cut off is as after a crash: a notification without a receipt is sent again.
    for ending, code in ((signal.SIGINT, 130), (signal.SIGTERM, 0)):
        signal.signal(ending, lambda *_, code=code: sys.exit(code))
    parser = argparse.ArgumentParser(prog="python -m payments.sandbox")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--data-dir", type=Path, required=True, help="keys and store; made if missing")
    parser.add_argument("--shop", default="", help="address of the shop, to be led from to a page that is paid")
    given = parser.parse_args()
    serve(port=given.port, folder=given.data_dir, shop=given.shop)


if __name__ == "__main__":
    main()
