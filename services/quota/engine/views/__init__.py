"""Read-only views of the engine's state, computed when they are asked for.

`queues` counts workloads and usage of queues for statuses and metrics; `balances` says who holds the
quota of each queue and cohort; `explanation` says why a workload waits, what is short and what would
help. Nothing here changes the state.
"""
