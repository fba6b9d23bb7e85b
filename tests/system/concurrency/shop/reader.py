"""A process that shows the catalogue's page from its memory, as a web process does; asked line by line."""

import json
import os
import sys
from typing import Any

from tests.system.concurrency.shop import children


class Reader:
    """The process; `stop` it in the end."""

    def __init__(self, *, database: str) -> None:
        self._process = children.start("tests.system.concurrency.shop.reader", database=database)

    def ask(self, **question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        return json.loads(self._process.stdout.readline())

    def begin(self, *, seconds: float) -> None:
        """With no copy, and copies that live so long."""
        self.ask(seconds=seconds)

    def read(self, sku: str) -> dict[str, Any]:
        """The product as this process shows it among all."""
        found: dict[str, Any] = self.ask(sku=sku)
        return found

    def answer(self, sku: str) -> dict[str, Any]:
        """The product as this process's API answers it."""
        found: dict[str, Any] = self.ask(api=sku)
        return found

    def fork(self) -> None:
        """From now on a child answers that was forked from it, copy and all."""
        self.ask(fork=True)

    def end_fork(self) -> None:
        """The child has ended, and its parent answers again."""
        self.ask(end=True)

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0
        self._process.stdout.close()


def main() -> None:
    """A question and its answer a line, until the input ends."""
    import django

    django.setup()
    from dataclasses import asdict

    from django.conf import settings
    from django.db import connection

    from shop.catalog import cache
    from shop.catalog import products as catalog

    while text := sys.stdin.readline():
        question = json.loads(text)
        answer: Any = "done"
        if "sku" in question:
            answer = next(asdict(one) for one in cache._current().listings if one.sku == question["sku"])
        elif "api" in question:
            answer = asdict(catalog.get_product(sku=question["api"], user_id=None))
        elif "seconds" in question:
            settings.CATALOGUE_SECONDS = question["seconds"]
            cache.forget_copy()
        elif "end" in question:
            break
        elif (child := os.fork()) and (code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])):
            sys.exit(code)
        connection.close()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
