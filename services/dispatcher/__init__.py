"""The dispatcher of the hub sends workloads to spokes, and answers time-window admission checks.

In: admissions, observed objects of the hub and of the spokes, heartbeats and copy reports of the spokes.
Inside: a store of what was read, a plan for each workload, an order life cycle for each spoke.
Out: check states, orders to spokes, job and Workload statuses for the hub, conditions of the spokes.
"""
