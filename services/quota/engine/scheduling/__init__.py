"""Scheduling cycles: which waiting workload gets which flavors, and which victims go for it.

A cycle takes one head of every ClusterQueue in a tree, searches an assignment for each
(`assignment_search`, `flavors`), orders them and admits, preempts or requeues. Decisions come out.
"""
