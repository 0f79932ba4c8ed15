"""The pure core: which TaskRun gets which host.

Enters: the ledger of one platform, its configuration, requests, and reports of machines and hosts.
Leaves: the next ledger, a result for each request, and events for logs. Nothing here waits or reads a clock.
"""
