"""`make run`: embedded servers, demo data and every process of the shop on one machine.

Never orders or money. Used by the settings (`redis_url`), the app (`demo`), the tests and the Makefile.
"""
