"""A session keeps its plans while the tables grow."""

from collections.abc import Callable

import psycopg
from django.db import connection

from idempotency.postgres import statements
from payments.models import Attempt
from tests.integration.payments.conftest import letter, order_of
from tests.integration.test_upgrades import fresh_database
from tests.schema import definitions


def test_what_is_planned_for_empty_tables_reads_none_of_them_whole(open_attempt: Callable[..., Attempt]) -> None:
    connection.close()
    for _ in range(statements.USES):
        assert letter(open_attempt()).send().status_code == 204
        two_ways = open_attempt()
        open_attempt("alipay", order_of(two_ways))
        assert letter(two_ways).send().status_code == 204
    kept = connection.connection.execute(
        "SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements WHERE name LIKE 'payonce%'"
    ).fetchall()
    assert len(kept) == 10  # BEGIN and COMMIT have no plan
    with connection.cursor() as cursor:
        tables, rest = definitions(cursor, "^(payments|shop|auth|django)_")
    indexes = [made for made in rest if made.startswith(("ALTER TABLE", "CREATE INDEX", "CREATE UNIQUE INDEX"))]
    with fresh_database() as former, psycopg.connect(**former.get_connection_params()) as empty:
        empty.execute("; ".join([*tables, *indexes]))
        empty.execute("SET plan_cache_mode = force_generic_plan")
        for name, statement, parameters in kept:
            empty.execute(statement)
            nothing = ", ".join(["NULL"] * parameters)
            plan = [line for (line,) in empty.execute(f"EXPLAIN EXECUTE {name} ({nothing})")]
            assert not [line for line in plan if "Seq Scan" in line], statement
