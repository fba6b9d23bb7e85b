"""The web platform under the shop: middleware, sessions, logs, health, last-resort answers.

Never orders, products or money. Used by every room above and by the settings.
"""
