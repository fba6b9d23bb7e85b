"""Settings of Django's test suite under which every outermost `atomic` block is one of `transactions.defer`."""

import atexit
import os

from django.db import transaction
from environ import Env

from idempotency.postgres import transactions

_SERVER = Env.db_url_config(os.environ["DATABASE_URL"])

DATABASES = {
    name: {**_SERVER, "TEST": {"NAME": f"{os.environ['SUITE_NAME']}_{name}"}} for name in ("default", "other")
}
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


def _exited(self: transaction.Atomic, *error: object) -> None:
    database = transaction.get_connection(self.using)
    if not database.savepoint_ids:
        transactions.stop(database)
    _exit(self, *error)


transaction.Atomic.__enter__ = _entered
transaction.Atomic.__exit__ = _exited


atexit.register(lambda: print(f"{len(deferred)} blocks deferred", flush=True))
