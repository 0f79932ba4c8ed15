"""Carries out decisions in one cluster: the only service that writes to its API server.

Enters: workload states, admissions, check states, queue status, host states and dispatches from the bus.
Inside: each handler brings one object in line with the latest decision; every step can be repeated.
Leaves: Workload objects, released and suspended jobs, secrets, copies of hub jobs, events, outcomes.
"""
