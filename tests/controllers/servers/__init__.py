"""Starts the programs of a cluster, and the accounts of those who use it.

What enters are the paths of the programs. Each module runs one part: the API server and its controllers, a
played node, Tekton, Kueue, and our own services. What leaves are running parts that stop with their context.
"""
