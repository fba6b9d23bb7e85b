# ruff: noqa: F403, F405
"""The hotel, whose bookings change by their version."""

from with_payments import *

PAYMENTS["ORDER"] = "bookings.versioned.Versioned"
