"""The other side, for development and tests: all platforms in a process of their own.

Speaks the true wire protocols with real signatures both ways; its own store is the witness of what was really
charged. Only `make run` imports it, for `keys`; run it with `python -m payments.sandbox`.
"""
