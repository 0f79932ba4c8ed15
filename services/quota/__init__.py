"""Decides which workload may start, and publishes each decision."""
