"""Publishes what the dispatcher decided.

In: plans, and the store.
Out: check states, orders to spokes, the status of a workload at the hub, and the status of each spoke.
A message is published only if it differs from the last one of its subject.
"""
