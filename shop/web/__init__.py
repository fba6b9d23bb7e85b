"""Pages for shoppers: catalogue, basket, checkout, orders, flash sales, live updates. HTTP mapping only.

Never writes or decides: orders, sales, catalogue and payments do. Used by addresses, templates, admin and tasks.
"""
