"""The JSON API under `/api/v1/` (docs/contract.md, 2): HTTP mapping only. Every call needs a logged-in caller.

Never writes or decides: orders, sales and catalogue do. Used by the addresses and by `web`.
"""
