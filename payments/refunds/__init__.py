"""Refunds: reserved, submitted to the provider under our own number, and concluded by what it says.

Never: money out of a second number for the same refund. Used by the API, operators, the timer and webhooks.
"""
