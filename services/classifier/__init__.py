"""Classifies jobs: which queue, priority and requests each of them has.

What enters: reviews of the API server over HTTPS, and observed objects from the bus.
What leaves: mutated or refused objects, and the state of every workload on the bus.
"""
