"""Answers about waiting workloads and queues.

`explainer` answers queries on the bus from the leader's state. `replica` keeps the same state up to
date from the streams in a process that does not lead, such as the console.
"""
