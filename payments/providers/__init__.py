"""Providers: one merchant account of one channel, bytes and settings in, frozen facts out.

No Django, no state, no retries. Anyone above may come in, by `base` and `registry`.
"""
