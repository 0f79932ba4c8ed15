"""Everything that touches the API server of one cluster, and the cache of what it said.

Enters: observed objects, workload states and admissions from the bus, and the API server's answers.
Inside: `cache` keeps the latest of each, `writer` and `patches` make single writes safe to repeat,
`pacing` bounds the rate of writes that may wait, `errors` decides what is retried.
Leaves: creates, patches and deletes of Kubernetes objects, Kubernetes events, and the status of queues
and Integrations.
"""
