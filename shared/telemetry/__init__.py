"""Logging, traces and metrics: set-up and names."""
