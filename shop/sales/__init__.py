"""Flash sales: few units, one a buyer, first come, first served. Their only writer.

The database decides: unique (sale, buyer) over purchases that are not returned, and `sold`, which only a
conditional UPDATE below `units` increments, in the transaction that takes the unit off the shelf and writes the
order. Closing an unpaid order takes all of it back in its own transaction, once (trigger of migration 0001,
`shop.stock`); its buyer may buy again while the sale runs.

Redis in front spares SQL: late and repeated buyers cost one script (`scripts/flash_admit.lua`). It admits no more
buyers than there are units and numbers them as they arrive. An admission without an order goes back at once where
the refusal is known here, else when its lease ends. What Redis has lost is read from the database; where it is
wrong the database refuses, and `reconcile` corrects it within a minute. Without Redis the database alone sells,
and a process reads the sale once a second for all who wait, and after its own sales.

Lock order: the sale's row, then the product's; closing an order locks the order before them.
"""

from shop.sales.buying import announce, buy, reconcile, returned
from shop.sales.looking import Look, Phase, forget, look
from shop.sales.sales import is_ahead, place_of, purchase_of, running, terms_of

__all__ = [
    "Look",
    "Phase",
    "announce",
    "buy",
    "forget",
    "is_ahead",
    "look",
    "place_of",
    "purchase_of",
    "reconcile",
    "returned",
    "running",
    "terms_of",
]
