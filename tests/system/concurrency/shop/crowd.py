"""Many buyers with API tokens, made by SQL in the database of a running shop."""

from collections.abc import Sequence
from typing import Self
from uuid import uuid4

import httpx
import psycopg

from tests.running import UNLIMITED, until


def open_sale(database: psycopg.Connection, *, sku: str, units: int) -> int:
    """A product that is sold in a flash sale from now on; the sale's primary key."""
    row = database.execute(
        "WITH made AS (INSERT INTO shop_product (sku, name, description, picture, price_minor, currency, stock, "
        "flash_only, version) VALUES (%s, %s, '', 'parcel', 100, 'CNY', 1000, true, 1) RETURNING id) "
        "INSERT INTO shop_flashsale (product_id, units, sold, starts_at, ends_at, version) "
        "SELECT id, %s, 0, now() - interval '1 s', now() + interval '1 h', 1 FROM made RETURNING id",
        [sku, sku, units],
    ).fetchone()
    assert row is not None
    return int(row[0])


class Crowd:
    """Users who want one sku."""

    def __init__(self, database: psycopg.Connection, *, sku: str, count: int) -> None:
        self.sku = sku
        self.tokens = [uuid4().hex for _ in range(count)]
        self._database = database
        with database.cursor() as cursor:
            cursor.executemany(
                "WITH made AS (INSERT INTO auth_user (username, password, is_superuser, is_staff, is_active, "
                "first_name, last_name, email, date_joined) VALUES (%s, '!', false, false, true, '', '', '', now()) "
                "RETURNING id) INSERT INTO authtoken_token (key, user_id, created) SELECT %s, id, now() FROM made",
                [(f"{sku}-{number}", token) for number, token in enumerate(self.tokens)],
            )
        # a connection for each request, ended by the server
        self._client = httpx.Client(trust_env=False, limits=UNLIMITED, headers={"Connection": "close"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def buy(self, url: str, token: str, *, key: str) -> httpx.Response:
        return self._client.post(
            f"{url}/api/v1/flash-sales/{self.sku}/orders",
            headers={"Authorization": f"Token {token}", "Idempotency-Key": key},
        )

    def sell_the_rest(self, urls: Sequence[str], *, tokens: Sequence[str] | None = None) -> None:
        """Everybody asks again and again, until the sale's last unit is sold: none may be stuck."""
        wanting = list(self.tokens if tokens is None else tokens)

        def all_sold() -> bool:
            for number, token in enumerate(wanting):
                answer = self.buy(urls[number % len(urls)], token, key=uuid4().hex)
                assert answer.status_code in {201, 409}, answer.text
            left = self._database.execute(
                "SELECT units - sold FROM shop_flashsale JOIN shop_product ON shop_product.id = product_id "
                "WHERE sku = %s",
                [self.sku],
            ).fetchone()
            return left == (0,)

        until(all_sold)

    def sold_exactly(self, sale: int, units: int) -> None:
        """The sale, its purchases, its orders and the shelf agree."""
        row = self._database.execute(
            "SELECT sale.sold, count(*), count(DISTINCT purchase.buyer_id), count(DISTINCT purchase.order_id), "
            "1000 - product.stock FROM shop_flashsale sale JOIN shop_product product ON product.id = product_id "
            "JOIN shop_flashsalepurchase purchase ON purchase.sale_id = sale.id AND returned_at IS NULL "
            "WHERE sale.id = %s GROUP BY sale.sold, product.stock",
            [sale],
        ).fetchone()
        items = self._database.execute(
            "SELECT count(*), sum(quantity) FROM shop_orderitem WHERE sku = %s", [self.sku]
        ).fetchone()
        assert row == (units,) * 5
        assert items == (units, units)

    def places(self, sale: int) -> list[int]:
        """The buyers' places in the order of arrival, the smallest first."""
        rows = self._database.execute(
            "SELECT place FROM shop_flashsalepurchase WHERE sale_id = %s ORDER BY place", [sale]
        ).fetchall()
        return [place for (place,) in rows]
