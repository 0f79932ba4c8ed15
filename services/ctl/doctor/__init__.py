"""`sluice doctor`: looks for what is wrong, and says what to do about it.

In: streams, leases and, with `--kubeconfig`, access reviews of a cluster. Each module examines one
thing.
Out: `Finding`s: where, what the problem is, and an advice.
"""
