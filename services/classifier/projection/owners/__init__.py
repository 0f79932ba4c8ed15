"""Whose a Workload object is: a job's, nobody's, or the one that a job's user names.

Enters: jobs and Workload objects. Leaves: whether they belong together, and why not.
"""
