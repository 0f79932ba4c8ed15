"""Commands that change something, or try something out, for one object.

In: names, files and a kubeconfig. `steer` writes one field of a queue or workload, `backup` copies the
streams, `mutate` and `integration` run the webhook's code and an Integration document on a file,
`worlds` plays simulated worlds.
Out: one sentence or one document.
"""
