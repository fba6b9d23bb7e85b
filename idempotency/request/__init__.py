"""Reading of a keyed request: its caller, its key, its content.

Pure but for the caller's session. Never: the ledger, Redis, an answer. The protocol and the ledger come in.
"""
