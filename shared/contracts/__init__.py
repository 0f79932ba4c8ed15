"""What services agree on: the one home of each name that two of them use.

`messages` are what crosses NATS, `subjects` where; `kube` and `kueue` type the objects of the API server;
reasons, controllers, labels, annotations and references are constants and small types. Pure, without
input or output, and below everything else.
"""
