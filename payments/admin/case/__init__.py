"""The case file of a payment: its story, sums and history, and the export.

Reads only; nothing is decided or written here. Used by `payments.admin.payment`.
"""
