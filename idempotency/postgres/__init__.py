"""PostgreSQL below the ORM: statements sent together, outages, indexes.

Never decides, never opens a transaction of its own, knows no table of ours.
Used by every room that writes, and by projects that send statements by hand.
"""
