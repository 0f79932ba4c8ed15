"""Names and types that services agree on. A name that two services use is defined here only.

`messages` are the messages that cross NATS, `subjects` their subjects; `kube` and `kueue` type the
objects of the API server. Reasons, controllers, labels, annotations and references are constants and
small types. The package is pure, without input or output, and imports nothing of ours.
"""
