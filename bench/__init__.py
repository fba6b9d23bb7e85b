"""Benchmarks: what exactly-once costs, as ratios measured side by side."""
