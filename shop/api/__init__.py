"""The JSON API under `/api/v1/` (docs/contract.md, 2): HTTP mapping only; the refusals stand in `shop.errors`.

Every call needs a logged-in caller.
"""
