"""The JSON API under `/api/v1/` (docs/contract.md, 2), for logged-in callers. HTTP only.

Never writes or decides: orders, sales and catalogue do. Used by addresses, `web`, admin and the app.
"""
