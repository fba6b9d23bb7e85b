"""A project whose default database is SQLite, with orders and ledger in PostgreSQL.

A door of `tests/foreign` shows its atomic calls.

`python -m tests.integration.idempotency.other_database` with ORDERS, REDIS (addresses) and SQLITE (a path) goes
through every scenario, each on an empty ledger, and the first without Redis; a failed assertion is the end of it.
"""

import hmac
import os
from typing import Any

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import path
from environ import Env

COPIES = 8


def caller(request: HttpRequest) -> str:
    return "ann"


if __name__ == "__main__":
    settings.configure(
        SECRET_KEY="x" * 50,
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["testserver"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": os.environ["SQLITE"],
                "ATOMIC_REQUESTS": True,
            },
            "orders": Env.db_url_config(os.environ["ORDERS"]),
        },
        DATABASE_ROUTERS=["idempotency.routers.LedgerRouter"],
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "idempotency"],
        MIDDLEWARE=["idempotency.middleware.IdempotencyMiddleware"],
        IDEMPOTENCY={
            **{"DATABASE": "orders", "REDIS": os.environ["REDIS"], "WAIT_SECONDS": 20},
            "PRINCIPAL": f"{__name__}.caller",
        },
    )
    django.setup()

    from django.contrib.auth.models import Group
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import call_command
    from django.core.management.base import SystemCheckError
    from django.db import connections, transaction
    from django.test import Client, RequestFactory, override_settings

    from idempotency import KeyedCall, consume_once, idempotent, ledger, once
    from idempotency.checks.settings import check_settings
    from idempotency.models import LedgerEntry
    from idempotency.modes import PHASED
    from idempotency.webhooks import GitHub, apply_stored_events, webhook
    from tests.threads import at_once

    def place(text: str) -> int:
        with connections["orders"].cursor() as cursor:
            cursor.execute("INSERT INTO placed (text) VALUES (%s) RETURNING id", [text])
            return int(cursor.fetchone()[0])

    def count(text: str) -> int:
        with connections["orders"].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM placed WHERE text = %s", [text])
            return int(cursor.fetchone()[0])

    @idempotent(mode=PHASED)
    def charge(request: HttpRequest, call: KeyedCall) -> HttpResponse:
        assert not connections["orders"].in_atomic_block
        return HttpResponse(place(request.POST["text"]), status=201)

    def register(request: HttpRequest) -> HttpResponse:
        Group.objects.create(name="in the default database")
        raise RuntimeError("after that")

    urlpatterns = [path("charge", charge), path("marked", idempotent(register)), path("named", register)]

    def a_phased_call_counts_once() -> None:
        def post() -> Any:
            return Client().post("/charge", {"text": "by phases"}, headers={"Idempotency-Key": "k1"})

        answers = at_once(*[post] * COPIES)
        assert {(found.status_code, found.content) for found in answers} == {(201, answers[0].content)}
        assert count("by phases") == 1

    @override_settings(IDEMPOTENCY=settings.IDEMPOTENCY | {"KEYED": ["/named"]})
    def the_other_database_has_the_transaction_that_its_settings_ask_for() -> None:
        for address in ("/marked", "/named"):
            Client(raise_request_exception=False).post(address, headers={"Idempotency-Key": "k1"})
            assert not Group.objects.exists(), address

    def a_function_counts_once() -> None:
        call = once("orders.place", key="basket-8", wait=20)
        assert None not in at_once(*[lambda: call.run(place, "by copies")] * COPIES)
        assert count("by copies") == 1

    def a_message_counts_once() -> None:
        def applied() -> bool:
            with transaction.atomic(using="orders"):
                return consume_once("message 1", consumer="stock")

        assert sorted(at_once(*[applied] * COPIES)) == [False] * (COPIES - 1) + [True]

    def a_webhook_counts_once() -> None:
        raw = b'{"id": "e1"}'
        signature = f"sha256={hmac.digest(b's', raw, 'sha256').hex()}"
        view = webhook("there", verify=GitHub("s"), id="X-Number", defer=True)(lambda event: place(event.id))
        headers = {"X-Hub-Signature-256": signature, "X-Number": "e1"}
        for _ in range(2):
            sent = RequestFactory().post("/", raw, content_type="application/json", headers=headers)
            assert view(sent).status_code == 200
        assert (apply_stored_events(), apply_stored_events(), count("e1")) == ({"applied": 1}, {}, 1)

    def commands_and_checks_look_there() -> None:
        call_command("idempotency", "reap")
        assert check_settings(None) == []
        call_command("check", databases=["orders"], fail_level="ERROR")
        with connections["orders"].cursor() as cursor:
            cursor.execute(
                "ALTER TABLE idempotency_ledgerentry DROP CONSTRAINT ledger_one_entry_per_scope_and_key CASCADE"
            )
        try:
            call_command("check", databases=["orders"], fail_level="ERROR")
        except SystemCheckError as error:
            refused = str(error)
        assert "idempotency.E007" in refused

    call_command("migrate", database="default", verbosity=0)
    try:
        once("n", key=1).run(lambda: None)
    except ImproperlyConfigured as error:
        assert "run `manage.py migrate idempotency --database orders`" in str(error)  # noqa: PT017
    call_command("migrate", database="orders", verbosity=0)
    with connections["orders"].cursor() as cursor:
        cursor.execute("CREATE TABLE placed (id serial PRIMARY KEY, text text)")
    scenarios = (
        a_phased_call_counts_once,
        the_other_database_has_the_transaction_that_its_settings_ask_for,
        a_function_counts_once,
        a_message_counts_once,
        a_webhook_counts_once,
    )
    without_redis = override_settings(IDEMPOTENCY=settings.IDEMPOTENCY | {"REDIS": None})
    for scenario in (without_redis(a_phased_call_counts_once), *scenarios, commands_and_checks_look_there):
        print(scenario.__name__, flush=True)
        LedgerEntry.objects.all().delete()
        with connections["orders"].cursor() as cursor:
            cursor.execute("DELETE FROM placed")
        ledger.renew_epoch()  # nor does Redis remember
        scenario()
