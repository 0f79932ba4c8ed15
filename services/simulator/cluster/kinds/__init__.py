"""The kinds that a cluster serves.

Enters: the built-in kinds (`catalogue`) and CustomResourceDefinitions (`definitions`).
Inside: a registry of names, versions and scopes, and the rows that `kubectl get` shows (`tables`).
Leaves: a `registry.Kind` for a URL, for an object, or for discovery.
"""
