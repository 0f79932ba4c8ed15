"""What the hub itself has: its jobs, and the objects that configure MultiKueue.

In: observed objects of the hub cluster.
Out: the job behind a workload, and the spokes that an AdmissionCheck may use.
"""
