"""The lifecycle of workloads: back-off, readiness, execution time, deactivation.

`table` lists states, events and transitions. `workload` applies them to one workload, whose record is
on the log. `timers` keeps all workloads of a term and requests evictions from the engine in time.
"""
