"""Tenants of the foreign project, each with a schema and a host of its own."""
