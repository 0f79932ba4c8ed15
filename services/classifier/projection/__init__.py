"""Projects observed objects to the state of each workload. Nothing is decided here.

What enters: jobs, Workload objects and what their requests depend on (OBSERVED), machine slots (HOSTS).
What leaves: one `WorkloadState` per workload (WORKLOADS), published by the one replica with the lease.
A restart rebuilds everything from these streams.
"""
