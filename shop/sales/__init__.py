"""Flash sales: few units, many buyers, one unit each, first come, first served. The only writer of their tables.

The database is the judge: unique (sale, buyer) over purchases that stand, and `sold` that only a conditional
UPDATE below `units` counts up, in the one transaction that also takes the unit off the shelf and writes the order.
Closing an unpaid order takes all of that back in its own transaction (trigger of migration 0004, `shop.stock`),
once; then its buyer may buy again while the sale runs.

Redis stands in front, so that those who come too late, or again, cost one script and none of the sale's SQL
(`scripts/flash_admit.lua`). It admits no more buyers than there are units and numbers them as they arrive. An
admission that becomes no order goes back: at once where the refusal is known here, else when its lease is over.
What Redis has lost is read from the database again; where it is wrong, the database refuses, and `reconcile`
corrects it within a minute. With Redis away, the database alone sells, and a process reads for all who wait once
a second, and after what it sold itself.

Lock order: the sale's row, then the product's; closing an order locks the order before them.
"""

from shop.sales.buying import announce, buy, reconcile, returned
from shop.sales.gate import Admission, admit, refuse_late
from shop.sales.looking import Look, Phase, forget, look
from shop.sales.sales import is_ahead, place_of, purchase_of, running

__all__ = [
    "Admission",
    "Look",
    "Phase",
    "admit",
    "announce",
    "buy",
    "forget",
    "is_ahead",
    "look",
    "place_of",
    "purchase_of",
    "reconcile",
    "refuse_late",
    "returned",
    "running",
]
