"""Logs, metrics and traces of a process.

Structured log lines go to standard error, Prometheus metrics stay in memory until they are scraped,
spans go to an OTLP collector. Nothing here decides anything.
"""
