"""Turns the logs into traces: one for each workload, handed to a collector when it has ended."""
