"""Says what a job is: its queue, priority and requests; answers the admission webhook."""
