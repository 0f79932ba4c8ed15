"""Whose a Workload object is: a job's, nobody's, or the one that a job's user names.

Enters: jobs, Workload objects, and the states that were published before.
Leaves: which Workload a job has, and why it does not have the one that its user names.
"""
