"""Work on the ledger between requests: remove, complete, resolve, abandon.

Never in a request's way: bounded batches, callable any number of times at once. Commands, timers and the admin
come in.
"""
