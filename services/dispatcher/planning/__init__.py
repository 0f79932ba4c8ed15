"""Decides where a workload runs.

In: the store, from which `situation` collects all facts about one workload.
Out: a plan (`plan`): the answer of the admission check, and one event for each order to a spoke.
Pure functions, except that `situation` reads the store.
"""
