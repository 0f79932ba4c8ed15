"""What the hub knows of its spokes: free quota, liveness, and the copies of its jobs.

In: heartbeats, and observed ClusterQueues, LocalQueues, Workloads and jobs of the spokes.
Out: whether a workload fits, whether a spoke is live, and the phase of each copy.
"""
