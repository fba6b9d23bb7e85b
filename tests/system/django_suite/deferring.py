"""Settings of Django's test suite under which every outermost `atomic` block is one of `transactions.defer`."""

import atexit
import os
from typing import Any
from urllib.parse import unquote, urlsplit

from django.db import transaction

from idempotency.postgres import transactions

_server = urlsplit(os.environ["DATABASE_URL"])
_query = dict(pair.split("=", 1) for pair in _server.query.split("&") if pair)


def _database(name: str) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": unquote(_query.get("host", _server.hostname or "")),
        "PORT": _server.port or "",
        "USER": unquote(_server.username or ""),
        "PASSWORD": unquote(_server.password or ""),
        "NAME": _server.path.lstrip("/"),
        "TEST": {"NAME": f"{os.environ['SUITE_NAME']}_{name}"},
    }


DATABASES = {"default": _database("default"), "other": _database("other")}
SECRET_KEY = "of Django's own tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False

_enter, _exit = transaction.Atomic.__enter__, transaction.Atomic.__exit__
deferred: list[str] = []


def _entered(self: transaction.Atomic) -> None:
    _enter(self)
    database = transaction.get_connection(self.using)
    transactions.defer(database)
    if getattr(transactions._traffic_of(database), "travels", False):
        deferred.append(self.using or "default")


def _exited(self: transaction.Atomic, *error: Any) -> None:
    database = transaction.get_connection(self.using)
    if not database.savepoint_ids:
        transactions.stop(database)
    _exit(self, *error)


transaction.Atomic.__enter__ = _entered
transaction.Atomic.__exit__ = _exited


atexit.register(lambda: print(f"{len(deferred)} blocks deferred", flush=True))
