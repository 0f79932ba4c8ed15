"""Computes what the pods of a workload request.

What enters: pod templates, limit ranges, runtime classes and configured transformations.
What leaves: the pod sets of a `WorkloadState`, with final requests for one pod each.
"""
