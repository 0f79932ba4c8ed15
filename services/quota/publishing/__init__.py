"""Publication of results that are not urgent: wait reasons and statuses of queues.

Wait reasons (`reasons`) and statuses of queues (`queue_status`) come from the engine and go out at a
limited rate, so that they do not slow down admissions.
"""
