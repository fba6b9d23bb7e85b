"""Observability: metrics, traces, log lines, and background threads.

Works without prometheus-client and without OpenTelemetry, and never sees a key, only its digest.
Used by every room above it.
"""
