"""Channels: the configured providers, and what all processes share about their calls.

Never decides about money; limits spare work and protect providers. Used by settlement and above.
"""
