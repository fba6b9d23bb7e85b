# ruff: noqa: F403, F405
"""The project with Redis, and Celery over another database of it."""

from urllib.parse import urlsplit

from tasks_alone import *

_redis = urlsplit(os.environ["REDIS_URL"])
BROKER = (
    f"redis+socket://{_redis.path}?virtual_host=1"
    if _redis.scheme == "unix"
    else _redis._replace(path="/1").geturl()
)
ROOT_URLCONF = "doors.queue_api"
