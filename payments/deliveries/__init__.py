"""Deliveries: decisions leave as signed Standard Webhooks to the project's endpoints.

In: rows that settlement staged. Out: requests, one at a time a payment, and what became of them. Never: decisions.
Used by tasks, operations and the metrics.
"""
