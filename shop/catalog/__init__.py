"""The catalogue: what is for sale and how it is shown.

Never stock or orders: nothing is decided on what this room keeps in memory. Used by pages, API, admin and stock.
"""
