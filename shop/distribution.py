"""Where each table stands once one primary is not enough, and what a distributed PostgreSQL would refuse of it.

By schema, a node has whole shops: each has its tables in a schema of its own, so every constraint, foreign key and
trigger finds what it needs on one node, and no table needs a distribution column. By row (`PLAN`), the tables that
grow with every call leave the primary, and the others stay: what one commit must hold together stays together.
docs/operations.md, "Past one primary", says which is for whom.

A table spread by hash keeps uniqueness in each shard alone, so each of its unique keys must hold the distribution
column, and so must a foreign key between two of them. Source: Citus documentation, "Creating and Modifying
Distributed Tables (DDL)" (read 2026-11); the same holds of PostgreSQL's own partitions, "Table Partitioning".

`in_the_way` of a placement is what that rule refuses today; a test holds the sentences against the schema.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper


@dataclass(frozen=True, slots=True, kw_only=True)
class Distributed:
    """In shards, by the hash of a column.

    Attributes:
        column: whose value says in which shard a row is.
        group: tables of one group have equal values of their columns in shards of one node.
        because: why this column.
        in_the_way: what has to change first, as `obstacles` says it; nothing: the table can go as it is.
    """

    column: str
    group: str
    because: str
    in_the_way: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """On the primary, which a distributed PostgreSQL calls its coordinator."""

    because: str


Placement = Distributed | Local


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKey:
    """`columns` of a table name a row of `table` by its `keys`, in the same order."""

    columns: tuple[str, ...]
    table: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What the rules look at. `unique` has the columns of every other unique index, partial ones too."""

    columns: frozenset[str]
    primary_key: tuple[str, ...] | None = None
    unique: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()


_MONEY = Local(because="a fact, its totals, its journal and its order are one commit")
_SALE = Local(because="an order, its units and what it came from are one commit")
_PEOPLE = Local(because="small, and named by foreign keys of what is local")
_QUEUE = Local(
    because="a job, or the event it is for, is staged in the transaction that needs it, and taken under a row lock"
)

PLAN: Mapping[str, Placement] = {
    "idempotency_ledgerentry": Distributed(
        column="key",
        group="ledger",
        because="random where clients make it as ours do; a scope is one caller's on one route, and he may be hot",
        in_the_way=("primary key (id)",),
    ),
    "idempotency_ledgerattempt": Distributed(
        column="key",
        group="ledger",
        because="beside its entry",
        in_the_way=(
            "has no column key",
            "primary key (id)",
            "unique (entry_id, fence)",
            "foreign key (entry_id) to idempotency_ledgerentry (id)",
        ),
    ),
    "idempotency_consumedmessage": Distributed(
        column="message_id",
        group="inbox",
        because="a message's own number",
        in_the_way=("primary key (id)",),
    ),
    "django_session": Distributed(column="session_key", group="sessions", because="random, and its only key"),
    "idempotency_ledgerepoch": Local(because="one row"),
    **dict.fromkeys(
        (
            "payments_anomaly",
            "payments_attempt",
            "payments_auditentry",
            "payments_billcomparison",
            "payments_difference",
            "payments_journalentry",
            "payments_journalline",
            "payments_notification",
            "payments_observation",
            "payments_payment",
            "payments_paymentevent",
            "payments_refund",
        ),
        _MONEY,
    ),
    **dict.fromkeys(
        (
            "shop_campaign",
            "shop_coupon",
            "shop_flashsale",
            "shop_flashsalepurchase",
            "shop_fulfilment",
            "shop_like",
            "shop_order",
            "shop_orderitem",
            "shop_product",
            "shop_stocksegment",
        ),
        _SALE,
    ),
    **dict.fromkeys(
        (
            "auth_group",
            "auth_group_permissions",
            "auth_permission",
            "auth_user",
            "auth_user_groups",
            "auth_user_user_permissions",
            "authtoken_token",
            "django_admin_log",
            "django_content_type",
        ),
        _PEOPLE,
    ),
    **dict.fromkeys(
        (
            "procrastinate_events",
            "procrastinate_jobs",
            "procrastinate_periodic_defers",
            "procrastinate_workers",
        ),
        _QUEUE,
    ),
    "django_migrations": Local(because="written by a deployment alone"),
}


def obstacles(schema: Mapping[str, Table], plan: Mapping[str, Placement]) -> dict[str, tuple[str, ...]]:
    """What keeps the tables of `schema` from being placed as `plan` says; who has nothing in the way is left out.

    A table that only one of the two names is told as well.
    """
    found = {}
    for name in sorted(schema.keys() | plan.keys()):
        if name not in plan:
            sentences: tuple[str, ...] = ("is not in the plan",)
        elif name not in schema:
            sentences = ("is in the plan and not in the database",)
        else:
            sentences = (*_keys_in_the_way(schema[name], plan[name]), *_links_in_the_way(schema, plan, name))
        if sentences:
            found[name] = sentences
    return found


def _keys_in_the_way(table: Table, placement: Placement) -> list[str]:
    """The unique keys of a table in shards that do not hold its distribution column."""
    if not isinstance(placement, Distributed):
        return []
    told = [] if placement.column in table.columns else [f"has no column {placement.column}"]
    if table.primary_key is not None and placement.column not in table.primary_key:
        told.append(f"primary key ({', '.join(table.primary_key)})")
    return told + [f"unique ({', '.join(key)})" for key in table.unique if placement.column not in key]


def _links_in_the_way(schema: Mapping[str, Table], plan: Mapping[str, Placement], name: str) -> list[str]:
    return [
        f"foreign key ({', '.join(link.columns)}) to {link.table} ({', '.join(link.keys)})"
        for link in schema[name].foreign_keys
        if not _holds(plan[name], plan.get(link.table), link)
    ]


def _holds(here: Placement, there: Placement | None, link: ForeignKey) -> bool:
    """Whether the rows that `link` joins are on one node, wherever they are."""
    match here, there:
        case Distributed(), Distributed():
            return here.group == there.group and (here.column, there.column) in zip(
                link.columns, link.keys, strict=True
            )
        case Local(), Local():
            return True
    return False


_TABLES = """
SELECT c.relname, ARRAY(
    SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
"""

# an index's columns in their order; an expression among them has no name, and is no column
_UNIQUE = """
SELECT c.relname, i.indisprimary, ARRAY(
    SELECT coalesce(a.attname::text, 'expression')
    FROM unnest(i.indkey::int[]) WITH ORDINALITY AS k (number, nth)
    LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number AND k.number > 0
    WHERE k.nth <= i.indnkeyatts ORDER BY k.nth)
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
WHERE i.indisunique AND c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
ORDER BY c.relname, i.indexrelid
"""

_FOREIGN_KEYS = """
SELECT c.conrelid::regclass::text, c.confrelid::regclass::text,
    ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY AS k (number, nth)
          JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number ORDER BY k.nth),
    ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY AS k (number, nth)
          JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.number ORDER BY k.nth)
FROM pg_constraint c WHERE c.contype = 'f' AND c.connamespace = current_schema()::regnamespace
ORDER BY c.conrelid::regclass::text, c.conname
"""


def read_schema(cursor: CursorWrapper) -> dict[str, Table]:
    """The tables of the connection's schema, as PostgreSQL's catalogue has them."""
    cursor.execute(_TABLES)
    columns = {name: frozenset(names) for name, names in cursor.fetchall()}
    primary: dict[str, tuple[str, ...]] = {}
    unique: dict[str, list[tuple[str, ...]]] = {name: [] for name in columns}
    links: dict[str, list[ForeignKey]] = {name: [] for name in columns}
    cursor.execute(_UNIQUE)
    for name, is_primary, names in cursor.fetchall():
        if is_primary:
            primary[name] = tuple(names)
        else:
            unique[name].append(tuple(names))
    cursor.execute(_FOREIGN_KEYS)
    for name, table, names, keys in cursor.fetchall():
        links[name].append(ForeignKey(columns=tuple(names), table=table, keys=tuple(keys)))
    return {
        name: Table(
            columns=columns[name],
            primary_key=primary.get(name),
            unique=tuple(unique[name]),
            foreign_keys=tuple(links[name]),
        )
        for name in columns
    }
