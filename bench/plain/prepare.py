"""The stores of one server before it starts, and the round trips of its calls.

`python -m bench.plain.prepare CALLS` makes the tables and the caller, and prints title -> store -> round trips. It
runs under the interpreter and settings of the server.
"""

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bench.variants import KEY

DELAY_SECONDS = 0.01
CALLS = 5
WARM_CALLS = 7  # connections, scripts and prepared statements are there afterwards


class Relay:
    """Unix socket in front of a store's own, which delays every reply and counts round trips.

    A round trip begins with what the caller sends after a reply, so pipelined commands are one.

    Attributes:
        delay_seconds: of each reply: so the caller does not get it before it has sent all that needs no reply.
        begun: round trips since it was last set to zero.
    """

    def __init__(self, store: str, at: str) -> None:
        self.delay_seconds = 0.0
        self.begun = 0
        self._answered = True
        self._store = store
        ready = threading.Event()
        threading.Thread(target=asyncio.run, args=(self._serve(at, ready.set),), daemon=True).start()
        ready.wait()

    @property
    def waited_for(self) -> int:
        """Round trips without the one whose reply is still to come."""
        return self.begun - (not self._answered)

    async def _serve(self, at: str, ready: Callable[[], None]) -> None:
        server = await asyncio.start_unix_server(self._join, at)
        ready()
        await server.serve_forever()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        store, to_store = await asyncio.open_unix_connection(self._store)
        loop = asyncio.get_running_loop()

        def ask(data: bytes) -> None:
            self.begun += self._answered
            self._answered = False
            to_store.write(data)

        def answer(data: bytes) -> None:
            self._answered = True
            writer.write(data)

        await asyncio.gather(
            _pass_on(reader, ask), _pass_on(store, lambda data: loop.call_later(self.delay_seconds, answer, data))
        )


async def _pass_on(reader: asyncio.StreamReader, write: Callable[[bytes], Any]) -> None:
    while data := await reader.read(65536):
        write(data)


def relays(folder: str) -> dict[str, Relay]:
    """Put a relay in front of each store, and its address into the environment."""
    database, memory = urlsplit(os.environ["DATABASE_URL"]), urlsplit(os.environ["REDIS_URL"])
    name = f".s.PGSQL.{database.port or 5432}"
    where = parse_qs(database.query)["host"][0]
    found = {
        "PostgreSQL": Relay(f"{where}/{name}", f"{folder}/{name}"),
        "Redis": Relay(memory.path, f"{folder}/redis.sock"),
    }
    os.environ["DATABASE_URL"] = database._replace(query=f"host={folder}").geturl()
    os.environ["REDIS_URL"] = os.environ["REDIS_URL"].replace(memory.path, f"{folder}/redis.sock")
    return found


def round_trips(stores: dict[str, Relay], call: Callable[[], None]) -> dict[str, int]:
    """Count the round trips that a call waits for; the least of some calls, as a slow moment can only add some."""
    for store in stores.values():
        store.delay_seconds = 0.0
    for _ in range(WARM_CALLS):
        call()
    for store in stores.values():
        store.delay_seconds = DELAY_SECONDS
    seen = []
    for _ in range(CALLS):
        time.sleep(2 * DELAY_SECONDS)  # for replies that the call before did not wait for
        for store in stores.values():
            store.begun = 0
        call()
        seen.append({name: store.waited_for for name, store in stores.items()})
    return {name: min(one[name] for one in seen) for name in stores}


def main(text: str, folder: str) -> None:
    """Prepare, count and print."""
    stores = relays(folder)
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client

    call_command("migrate", run_syncdb=True, verbosity=0)
    User.objects.get_or_create(username="bench")  # one peer refers to the caller as a user
    client = Client()

    def post(wanted: dict[str, Any], key: str | None = None) -> None:
        """Fill in a new key, unless it is to be a replay."""
        given = json.dumps([wanted["headers"], wanted["body"]])
        headers, body = json.loads(given.replace(KEY, key or str(uuid.uuid4())))
        answer = client.post(wanted["path"], body, content_type="application/json", headers=headers)
        if answer.status_code >= 300:
            raise RuntimeError(f"{wanted['path']} answers {answer.status_code}: {answer.content[:160]!r}")

    counts = {}
    for wanted in json.loads(text):
        key = str(uuid.uuid4()) if wanted["replays"] else None
        counts[wanted["title"]] = round_trips(stores, partial(post, wanted, key))
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as found:
        main(sys.argv[1], found)
