"""Stripe, by its own library."""
