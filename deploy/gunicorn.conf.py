"""gunicorn as every deployment here starts it: systemd, containers, `make cluster`.

Environment: BIND (default 127.0.0.1:8000), WEB_CONCURRENCY (processes, default 1: one a port, so that
each can be scraped for its own numbers), WEB_THREADS (each, default 8).
"""

import os

bind = os.environ.get("BIND", "127.0.0.1:8000")
workers = int(os.environ.get("WEB_CONCURRENCY", "1"))
worker_class = "gthread"
threads = int(os.environ.get("WEB_THREADS", "8"))
worker_tmp_dir = "/dev/shm"  # noqa: S108  the heartbeat file: never on a disk that may hang
keepalive = 75  # longer than nginx keeps its connections, so that it is nginx who closes them
timeout = 30  # a worker that is silent for so long is killed; a payment's provider calls end in less
graceful_timeout = 25  # a running payment ends before the process does
limit_request_line = 8_190
loglevel = "warning"
logger_class = "shop.platform.weblog.Logger"  # a JSON object a line
accesslog = None  # the shop's own log has a line for what matters, with the request's id
control_socket_disable = True
forwarded_allow_ips = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1")
forwarder_headers = ""  # no header becomes SCRIPT_NAME or PATH_INFO, from any sender
