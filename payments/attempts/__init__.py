"""Attempts: opening a trade at a provider under our own number, asking about it and closing it there.

Never: a call inside a transaction. Used by the API, refunds, webhooks, the timer and the shop's checkout.
"""
