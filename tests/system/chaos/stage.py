"""Stage of a run: users with tokens, few posters, a small sale, written by SQL."""

from dataclasses import dataclass

import psycopg

from tests.system.chaos.plan import USERS

POSTERS = (7, 6, 6, 6)  # a part a segment
SNEAKERS = 20
EMPTIED = (
    "shop_order",
    "shop_like",
    "payments_payment",
    "payments_notification",
    "payments_anomaly",
    "idempotency_ledgerentry",
    "procrastinate_jobs",
)

# sku, units on the shelf, units in orders
ON_SALE = """
SELECT p.sku, p.stock + coalesce((SELECT sum(units) FROM shop_stocksegment s WHERE s.product_id = p.id), 0),
    coalesce((SELECT sum(i.quantity) FROM shop_orderitem i JOIN shop_order o ON o.id = i.order_id
        WHERE i.product_id = p.id AND o.status <> 'closed'), 0)
FROM shop_product p ORDER BY p.sku
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What was there.

    Attributes:
        shelf: sku -> units that can be ordered.
        users: number -> primary key.
    """

    shelf: dict[str, int]
    users: dict[int, int]


def token(user: int) -> str:
    return f"chaos-{user}"


def build(connection: psycopg.Connection) -> Stage:
    """The demo data, with many buyers and little to buy."""
    with connection.transaction():
        connection.execute(
            "INSERT INTO auth_user (username, password, is_superuser, is_staff, is_active, first_name, last_name,"
            " email, date_joined) SELECT 'chaos-' || n, '!', false, false, true, '', '', '', now()"
            " FROM generate_series(0, %s) AS n ON CONFLICT DO NOTHING",
            [USERS - 1],
        )
        connection.execute(
            "INSERT INTO authtoken_token (key, created, user_id) SELECT username, now(), id FROM auth_user"
            " WHERE username LIKE 'chaos-%%' ON CONFLICT DO NOTHING"
        )
        connection.execute(
            "DELETE FROM shop_stocksegment WHERE product_id = (SELECT id FROM shop_product WHERE sku = 'poster')"
        )
        connection.execute(
            "UPDATE shop_product SET stock = 0, stock_strategy = 'segmented', stock_segments = %s"
            " WHERE sku = 'poster'",
            [len(POSTERS)],
        )
        connection.execute(
            "INSERT INTO shop_stocksegment (product_id, number, units) SELECT p.id, n - 1, u FROM shop_product p,"
            " unnest(%s::int[]) WITH ORDINALITY AS parts (u, n) WHERE sku = 'poster'",
            [list(POSTERS)],
        )
        connection.execute("UPDATE shop_product SET stock = %s WHERE sku = 'sneaker'", [SNEAKERS])
        # for an hour: to a web process whose clock is behind it would else not have begun
        connection.execute(
            "UPDATE shop_flashsale SET units = %s, starts_at = now() - interval '1 hour'", [SNEAKERS]
        )
    shelf = {sku: units for sku, units, _ in connection.execute(ON_SALE).fetchall()}
    users = connection.execute(
        "SELECT substr(username, 7)::int, id FROM auth_user WHERE username LIKE 'chaos-%'"
    ).fetchall()
    return Stage(shelf=shelf, users=dict(users))


def clear(connection: psycopg.Connection) -> None:
    """Forget what a run has left, but for users and goods; `build` then begins again."""
    connection.execute(f"TRUNCATE {', '.join(EMPTIED)} CASCADE")
    connection.execute("UPDATE shop_product SET stock = 100000 WHERE sku = 'mug'")
    connection.execute("UPDATE shop_flashsale SET sold = 0")
    connection.execute("UPDATE shop_coupon SET drawn_by_id = NULL, drawn_at = NULL")
