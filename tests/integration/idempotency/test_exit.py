"""Background threads end before their process closes its streams."""

import os
import subprocess
import sys
from pathlib import Path

import redis

PROGRAM = """
import atexit

atexit.register(lambda: last())  # first here is last at the exit: logging has been shut down by then

import logging
import os
import threading
import time

import django
import redis

django.setup()

from idempotency.locks import Lock, Topic
from idempotency.redis import subscriber

server = redis.Redis.from_url(os.environ["REDIS_URL"])
stream = open(os.devnull, "w")
logging.getLogger("idempotency").addHandler(logging.StreamHandler(stream))
logging.getLogger("idempotency").setLevel(logging.DEBUG)


def last():
    stream.close()
    server.client_kill_filter(_type="pubsub")
    while threading.active_count() > 1 and not server.client_list(_type="pubsub"):
        time.sleep(0.01)  # a listener comes back, and has said so before


lock = Lock("thing")
assert lock.acquire(wait_seconds=30)
listening = Topic("thing").listen()
assert listening.__enter__().take(wait_seconds=30) is None
bell = subscriber.listen("channel")
assert bell.__enter__() is not None
print(sorted(thread.name for thread in threading.enumerate() if thread is not threading.main_thread()))
"""

THREADS = "['locks-subscriber', 'locks-watchdog']\n"


def test_nothing_is_logged_to_streams_that_are_closed(redis_server: redis.Redis) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == (THREADS, "", 0)
