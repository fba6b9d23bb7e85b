"""Answers as they are stored: reduced, redacted, encrypted, and replayed.

Never: the ledger, Redis, a request. The protocol, the ledger, `redis`, maintenance and the admin come in.
"""
