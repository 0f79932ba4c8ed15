"""The state of each cluster, and computations on it that need no scheduling policy.

`state` holds queues, workloads and quota trees; the other modules compute on them: usage in trees,
the order of queues, shares, label matching, past usage of LocalQueues. Nothing here decides.
"""
