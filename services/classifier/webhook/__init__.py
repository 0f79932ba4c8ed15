"""The admission webhook: mutates new jobs, validates objects, converts Kueue's kinds between versions.

What enters: AdmissionReview and ConversionReview over HTTPS, and the objects of the cluster that set
defaults (queues, priority classes, namespaces) from the OBSERVED stream.
What leaves: the answer to each review, metrics, and the first span of a workload's trace.
"""
