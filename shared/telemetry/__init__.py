"""What a process says about itself: logs, metrics, traces.

Structured log lines go to standard output, Prometheus metrics are kept in memory until they are scraped,
spans go to an OTLP collector. Nothing here decides anything.
"""
