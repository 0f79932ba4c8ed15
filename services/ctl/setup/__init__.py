"""What a cluster and a NATS server must hold before the services can work.

In: manifests, models of our kinds, `deploy/nats/*.yaml`. `install` and `apply` write to a cluster:
definitions, webhook configurations, the manifests of a hub. `permissions` makes users of NATS.
Out: objects in the cluster, and files below `deploy/` that `make contracts` compares with what is
committed.
"""
