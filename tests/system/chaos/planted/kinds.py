"""The bugs by name, and what each needs gone from the database. Knows nothing of Django: the tests read it too."""

from tests.system.chaos.planted import Bug

LEDGER_UNIQUE = ("idempotency_ledgerentry", "ledger_one_entry_per_scope_and_key")

MARKER_WITHOUT_NX = Bug(name="marker without NX", constraints=(LEDGER_UNIQUE,))
COMPLETION_WITHOUT_CAS = Bug(name="completion without compare-and-set")
LEASE_IGNORED = Bug(name="lease ignored")
CALLBACK_WITHOUT_UNIQUE_ROW = Bug(
    name="callback without unique row",
    constraints=(
        ("payments_notification", "notification_once_per_id"),
        ("payments_observation", "observation_once_per_fact"),
    ),
)
REFUND_WITHOUT_RESERVATION = Bug(name="refund without reservation")
REAPER_WITHOUT_FILTER = Bug(name="reaper without filter")
STOCK_WITHOUT_CONDITION = Bug(
    name="stock without condition", constraints=(("shop_product", "product_stock_never_below_zero"),)
)
