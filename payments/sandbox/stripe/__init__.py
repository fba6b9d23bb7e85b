"""Stripe as the platform speaks it: the API and its documents."""
