"""Reconciliation: answers of providers to our questions, by timer and by daily bill.

Facts go to settlement, differences to a person; nothing here decides about money. Used by every room above it.
"""
