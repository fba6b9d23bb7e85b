"""Benchmarks: what exactly-once costs, as ratios measured side by side. The package is not part of the wheel."""
