"""A stranger's project: REST framework, one view with its own `atomic()`, no shop; `bench.keyed` serves it."""
