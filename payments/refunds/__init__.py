"""Refunds: reserved, submitted under our number, concluded by the provider's facts.

Never: money out of a second number for the same refund. Used by the API, operators, the timer and webhooks.
"""
