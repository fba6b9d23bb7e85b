"""Pages for shoppers: catalogue, basket, checkout, orders, sales. HTTP only.

Never writes or decides: orders, sales, catalogue and payments do. Used by addresses, templates, admin and tasks.
"""
