"""Decides which workload may start, and publishes each decision.

Queues, workloads, admission checks and outcomes come in from five streams. One leader applies them to
a pure engine (`engine`) and writes its decisions to `ADMISSIONS`, fenced by sequence; statuses of
queues and metrics go out besides.
"""
