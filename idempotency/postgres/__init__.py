"""PostgreSQL below the ORM: statements sent together, outages, indexes.

Never decides, opens no transaction but a snapshot's, knows no table of ours.
Used by every room that writes, and by projects that send statements by hand.
"""
