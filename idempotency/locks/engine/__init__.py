"""Machinery that all kinds share: holders, holds, places, steps and hubs.

Private: the kinds next door are its only callers. Never decides for a kind, never knows a setting of a project
beyond its Redis. `steps` says how one source serves threads and asyncio; `places` is the protocol with Redis.
"""
