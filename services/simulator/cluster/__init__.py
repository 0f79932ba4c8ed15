"""A Kubernetes API server's store and rules, in memory and without I/O."""
