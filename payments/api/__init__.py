"""HTTP of payments: the API for callers, and the webhooks of providers.

Maps requests to calls and results to responses; decides nothing. Used by `payments.urls` and by projects.
"""
