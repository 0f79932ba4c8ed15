"""When results that nobody waits for urgently are published.

Wait reasons (`reasons`) and statuses of queues (`queue_status`) come from the engine and go out at a
limited rate, so that they do not slow down admissions.
"""
