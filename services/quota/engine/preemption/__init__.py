"""Victims of a preemption: candidates, and two strategies to choose among them.

A `PreemptionRequest` goes in (who asks, for what, what is contested); a list of (victim, reason)
comes out, empty if no set of victims helps. Trials change the tree's usage and are undone.
"""
