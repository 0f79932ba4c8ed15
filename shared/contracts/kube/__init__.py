"""What Kubernetes itself fixes: kinds, bodies, conditions, names, quantities, ages.

JSON of an API server comes in. Typed bodies, conditions and exact amounts come out; labels, annotations
and finalizers that people rely on are named here.
"""
