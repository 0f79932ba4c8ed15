"""The controllers of Job, StatefulSet and JobSet.

Enters: Jobs, JobSets and StatefulSets, suspended or not.
Inside: one module for each kind; each follows the documented behaviour of Kubernetes 1.33 or JobSet.
Leaves: pods, child Jobs, claims, and the status of each object.
"""
