"""The case file of a payment: sentences and sums from its facts, its history, the page's context and the export.

Reads only; nothing is decided or written here. Used by `payments.admin.payment`.
"""
