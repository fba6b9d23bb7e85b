"""Inside a keyed call a project's transactions behave as plain Django's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from copy import deepcopy
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection, connections, transaction
from django.db.models.expressions import RawSQL
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import ClientCursor
from psycopg.sql import SQL

from idempotency.postgres import transactions
from tests.messages import messages

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]

# fails at its first row
BROKEN = Group.objects.annotate(broken=RawSQL("1 / (id - id)", []))
INSERT = "INSERT INTO auth_group (name) VALUES (%s)"


@contextmanager
def keyed(using: str | None = None) -> Iterator[None]:
    """Open a transaction as a keyed call does."""
    block = transaction.atomic(using, durable=True)
    block.__enter__()
    transactions.defer(transaction.get_connection(using))
    try:
        yield
    except BaseException as error:
        transactions.stop(transaction.get_connection(using))
        if not block.__exit__(type(error), error, error.__traceback__):
            raise
    else:
        transactions.stop(transaction.get_connection(using))
        block.__exit__(None, None, None)


def names() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))


def insert(name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(INSERT, [name])


@pytest.fixture(autouse=True)
def _the_server_has_seen_them() -> None:
    with keyed(), transaction.atomic():
        insert("seen")
        names()
        transaction.set_rollback(True)


class TestRoundTrips:
    def test_a_savepoint_goes_with_the_statement_after_it_or_is_never_sent(self) -> None:
        with messages(connection) as sent, keyed(), transaction.atomic():
            pass
        assert sent == []
        with messages(connection) as sent, keyed(), transaction.atomic():
            insert("a")
        assert sent == [2, 1]  # BEGIN and INSERT, COMMIT: a bare view's three are two
        with messages(connection) as sent, keyed():
            insert("b")
            with transaction.atomic(), transaction.atomic():
                pass
            for name in "cd":
                with transaction.atomic():
                    insert(name)
        assert sent == [2, 2, 3, 1]
        assert names() == ["a", "b", "c", "d"]

    def test_outside_of_a_keyed_call_or_with_server_side_binding_nothing_waits(self, request: Any) -> None:
        with messages(connection) as sent, transaction.atomic():
            insert("a")
            with transaction.atomic():
                insert("b")
        assert sent == [1, 1, 1, 1, 1, 1]
        request.getfixturevalue("server_side_binding")
        connection.ensure_connection()
        with messages(connection) as sent, keyed(), transaction.atomic():
            insert("c")
        assert len(sent) > 3
        assert names() == ["a", "b", "c"]

    def test_cursors_that_other_code_has_put_there_take_nothing_along(self) -> None:
        connection.ensure_connection()
        raw: Any = connection.connection
        own, raw.cursor_factory = raw.cursor_factory, type("Own", (ClientCursor,), {})
        try:
            with keyed():
                insert("a")
                with suppress(DatabaseError), transaction.atomic():
                    insert("b")
                    raise DatabaseError
                insert("c")
        finally:
            raw.cursor_factory = own
        assert names() == ["a", "c"]

    def test_a_pool_may_give_its_connection_to_another_of_djangos(self) -> None:
        chosen = deepcopy(connection.settings_dict)
        chosen["OPTIONS"] |= {"pool": {"min_size": 1, "max_size": 1}}
        wrappers: list[Any] = [type(connections["default"])(chosen, "pooled") for _ in range(2)]
        raws = set()
        try:
            for number in range(4):
                connections["pooled"] = database = wrappers[number % 2]
                with keyed("pooled"), database.cursor() as cursor:
                    cursor.execute(INSERT, [f"outer {number}"])
                    with transaction.atomic("pooled"):
                        cursor.execute(INSERT, [f"undone {number}"])
                        transaction.set_rollback(True, "pooled")
                raws.add(database.connection)
                database.close()
        finally:
            wrappers[0].close_pool()
            del connections["pooled"]
        assert len(raws) == 1
        assert names() == [f"outer {number}" for number in range(4)]

    @pytest.mark.parametrize(
        ("redis", "wanted"),
        [
            # the view's own `atomic()` and INSERT, the ledger's row and the commit: one fewer than the bare view
            ("default", [2, 2]),
            # BEGIN, advisory lock and entry; savepoint and INSERT; RELEASE, the ledger's row and the commit
            (None, [3, 2, 3]),
        ],
    )
    def test_a_keyed_call_sends_so_many_messages(
        self, client: Client, settings: Any, effects: Callable[[], int], redis: str | None, wanted: list[int]
    ) -> None:
        settings.IDEMPOTENCY = {"REDIS": redis}
        for _ in range(2):  # the first reads what its process keeps
            with messages(connection) as sent:
                answer = client.post("/nested", headers={"Idempotency-Key": str(uuid4())})
            assert answer.status_code == 201
        assert sent == wanted
        assert effects() == 2


ENDS: list[Any] = [
    *("COMMIT", " commit;", "-- now\nEND", "/* ' */ ROLLBACK", "rollback work", "BEGIN", "start  transaction"),
    *("abort", "PREPARE TRANSACTION 'a'", "COMMIT AND CHAIN", "SELECT 'a'; COMMIT", b"COMMIT", SQL("COMMIT")),
    *("/* a /* b */ c */ COMMIT", "/* ' /* /* */ */ */ SELECT 1; COMMIT; SELECT 'x'"),
]
NO_ENDS: list[Any] = [
    *("SELECT 'it''s; COMMIT'", 'SELECT 1 AS "; COMMIT"', "SELECT $x$; COMMIT$x$", "SELECT E'\\'; COMMIT'"),
    *("SELECT 1 -- ; COMMIT", "SELECT CASE WHEN true THEN 1\nEND", SQL("SELECT 1"), b"SELECT 1"),
    *("SAVEPOINT own; ROLLBACK WORK TO SAVEPOINT own", "SELECT 1 /* a /* b */; COMMIT */"),
    "CREATE FUNCTION pg_temp.one() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; END",
]


def by_hand(text: Any, *, past_django: bool = False) -> None:
    """Write a row, and run a text after it."""
    insert("a")
    (connection.connection if past_django else connection.cursor()).execute(text)


class TestItsEnd:
    """After a commit halfway the retry would do the first half again."""

    @pytest.mark.parametrize("text", ENDS, ids=str)
    def test_no_statement_ends_it(self, text: Any) -> None:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="by hand would end the transaction"), keyed():
                by_hand(text)
        assert names() == []

    @pytest.mark.parametrize("text", NO_ENDS, ids=str)
    def test_what_only_looks_so_runs(self, text: Any) -> None:
        with keyed():
            by_hand(text)
        assert names() == ["a"]

    @pytest.mark.parametrize("where", ["server-side binding", "logged", "a test case", "psycopg"])
    def test_nor_does_one_where_nothing_waits(self, where: str, request: Any) -> None:
        outer: list[Any] = [nullcontext()]
        if where == "server-side binding":
            request.getfixturevalue("server_side_binding")
        elif where == "logged":
            outer = [CaptureQueriesContext(connection)]
        elif where == "a test case":
            block: Any = transaction.atomic()
            block._from_testcase = True
            outer = [block]
        with outer[0], pytest.raises(RuntimeError, match="COMMIT by hand would end"), keyed():
            by_hand("COMMIT", past_django=where == "psycopg")
        assert names() == []
        with connection.cursor() as cursor:  # outside of a keyed call it is the project's own
            cursor.execute("BEGIN; COMMIT")


class TestAsDjango:
    def test_what_psycopg_runs_by_itself_is_undone_with_its_block(self) -> None:
        with keyed():
            insert("a")
            with transaction.atomic():
                with (
                    connection.cursor() as cursor,
                    cursor.copy("COPY auth_group (name) FROM STDIN") as copy,  # goes past Django's wrapper
                ):
                    copy.write_row(["b"])
                transaction.set_rollback(True)
            with transaction.atomic():
                connection.connection.execute(INSERT, ["c"])
                transaction.set_rollback(True)
            with transaction.atomic(), connection.connection.pipeline():
                connection.connection.execute(INSERT, ["d"])
        assert names() == ["a", "d"]

    def test_logged_queries_are_what_django_ran(self) -> None:
        def logged(block: Callable[[], Any]) -> list[str]:
            with CaptureQueriesContext(connection) as captured, block():
                insert("a")
                with transaction.atomic():
                    insert("b")
                transaction.set_rollback(True)
            return [query["sql"].split('"')[0] for query in captured]

        assert logged(keyed) == logged(transaction.atomic)

    def test_a_wrapper_that_comes_later_sees_the_savepoints(self) -> None:
        seen: list[str] = []

        def watching(execute: Any, sql: str, *rest: Any) -> Any:
            seen.append(sql.split(maxsplit=1)[0])
            return execute(sql, *rest)

        with keyed():
            insert("a")
            with connection.execute_wrapper(watching), transaction.atomic():
                insert("b")
            with transaction.atomic():
                insert("c")
                transaction.set_rollback(True)
        assert seen == ["SAVEPOINT", "INSERT", "RELEASE"]
        assert names() == ["a", "b"]

    def test_an_isolation_level_of_ones_own_is_psycopgs_to_begin(self) -> None:
        connection.connection.isolation_level = 4
        try:
            with keyed(), transaction.atomic():
                insert("a")
                with connection.cursor() as cursor:
                    cursor.execute("SHOW transaction_isolation")
                    assert cursor.fetchone() == ("serializable",)
        finally:
            connection.connection.isolation_level = None


OUTCOMES = st.sampled_from(["pass", "raise", "rollback"])
STEPS = st.sampled_from(
    [
        "insert",
        "insert",
        "again",
        "nested",
        "syntax",
        "nul",
        "read",
        "locked",
        "broken",
        "many",
        "hook",
        "point",
        "mark",
    ]
)
BLOCKS = st.recursive(
    st.tuples(STEPS),
    lambda inner: st.tuples(
        st.sampled_from([True, True, False]), st.lists(inner, min_size=1, max_size=4), OUTCOMES, st.booleans()
    ),
    max_leaves=12,
)


class Script:
    """Runs a tree of blocks and statements, and notes all that a project could see of it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.made = 0

    def block(self, node: Any) -> None:
        if len(node) == 1:
            self.step(node[0])
            return
        savepoint, inner, outcome, caught = node
        try:
            with transaction.atomic(savepoint=savepoint):
                for each in inner:
                    self.block(each)
                if outcome == "raise":
                    raise RuntimeError("raised")
                if outcome == "rollback":
                    transaction.set_rollback(True)
        except Exception as error:
            self.seen.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
            if not caught:
                raise
        self.seen.append(("left", connection.needs_rollback, connection.in_atomic_block))

    def step(self, name: str) -> None:
        try:
            self.seen.append((name, self.do(name)))
        except Exception as error:  # a project that catches what it should not, too
            self.seen.append((name, type(error).__name__, str(error).splitlines()[0]))

    def do(self, name: str) -> Any:
        match name:
            case "insert":
                self.made += 1
                insert(f"n{self.made}")
            case "again":
                insert("n1")
            case "nested":
                with transaction.atomic():
                    insert("n1")
            case "nul":
                insert("\0")  # never sent
            case "syntax":
                with transaction.atomic(), connection.cursor() as cursor:
                    cursor.execute("SELEC 1")
            case "read":
                return names()
            case "locked":
                return [each.name for each in Group.objects.select_for_update().order_by("name").iterator()]
            case "broken":
                with transaction.atomic():
                    return len(list(BROKEN.iterator()))
            case "many":
                self.made += 2
                with connection.cursor() as cursor:
                    cursor.executemany(INSERT, [[f"n{self.made - 1}"], [f"n{self.made}"]])
            case "hook":
                made = self.made
                transaction.on_commit(lambda: self.seen.append(("hook", made)))
            case "point":
                point = transaction.savepoint()
                insert("n1")
                transaction.savepoint_rollback(point)
            case "mark":
                point = transaction.savepoint()
                self.made += 1
                insert(f"n{self.made}")
                transaction.savepoint_commit(point)
        return None


def transcript(tree: list[Any], outcome: str, block: Callable[[], Any]) -> list[Any]:
    """Run a tree in an outermost block; return what was seen, and what is there afterwards."""
    script = Script()
    try:
        with block():
            for each in tree:
                script.block(each)
            if outcome == "raise":
                raise RuntimeError("raised")
            if outcome == "rollback":
                transaction.set_rollback(True)
    except Exception as error:
        script.seen.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
    script.seen.append(names())
    Group.objects.all().delete()
    return script.seen


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=st.lists(BLOCKS, min_size=1, max_size=5), outcome=OUTCOMES)
def test_every_tree_of_blocks_ends_as_in_plain_django(tree: list[Any], outcome: str) -> None:
    expected = transcript(tree, outcome, transaction.atomic)
    assert transcript(tree, outcome, keyed) == expected
