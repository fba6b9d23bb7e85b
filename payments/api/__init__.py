"""HTTP of payments: the API for callers, the webhooks of providers, and their limits.

Maps requests to calls and results to responses; decides nothing. Used by `payments.urls`.
"""
