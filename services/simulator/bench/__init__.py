"""Benchmarks that replay Kueue's scalability runner, as a client of an API server.

Enters: the address of a cluster, or nothing for the benchmark of spokes, which has a world of its own.
Inside: `generator` says what is created and when, `runner` creates it and finishes what is admitted,
`report` computes the figures.
Leaves: lines with times, use of quota, requests and CPU seconds.
"""
