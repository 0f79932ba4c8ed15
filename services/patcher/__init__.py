"""Writes decisions into one cluster: Workload objects, releases, events."""
