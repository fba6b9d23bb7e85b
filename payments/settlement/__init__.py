"""Settlement: from what a provider says to what is paid, refunded and booked.

In: verified facts (`read` → `decide` → `apply`). Out: committed rows, and events for the order. Never: network.
Used by every room above it.
"""
