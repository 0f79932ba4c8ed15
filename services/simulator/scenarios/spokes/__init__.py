"""A world with one hub and three spokes, and unreliable connections between them.

Enters: a seed.
Inside: the clusters and their services (`clusters`), the load and the faults (`scenario`), an operator
who takes quota back (`revocations`), and an observer of all pods in all clusters (`judge`).
Leaves: a verdict: no job runs in two places, none is lost, no copy stays behind.
"""
