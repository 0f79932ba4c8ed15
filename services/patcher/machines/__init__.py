"""The secrets by which TaskRuns reach their machines.

Enters: host states of the provisioner, which may hold values sealed to this cluster.
Inside: `seal_key` keeps the key pair that opens them; `secrets` builds the Secret of a TaskRun and the
labels, annotations and finalizer of the TaskRun itself.
Leaves: Secrets, patches of TaskRuns, events about machines, and the public key for the provisioner.
"""
