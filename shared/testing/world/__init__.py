"""A deterministic world: virtual time, processes that crash, and an unreliable bus and clusters.

Enters: a seed, the faults to inject (`world.Faults`) and the services to run as processes.
Inside: an event loop with a virtual clock (`loop`), a NATS server in memory with its client side
(`memory_*`, `connection`), and clusters behind a network (`kube`, `wire`).
Leaves: the same run for the same seed, with a log of all that happened.
"""
