"""Brings the pods of a PipelineRun to one node, by placeholder pods that the pods of its tasks follow.

Enters: a run that is about to start, that lost its quota, or that has ended, with its Workload.
Inside: `plan` says, without I/O, what is missing and what the objects look like; `reconciler` reads
the cluster and does one step after the other.
Leaves: claims and StatefulSets of placeholders, annotations of runs and Workloads, and their removal.
"""
