"""A Kubernetes API server in memory, without I/O.

Enters: requests of one verb each (`api`): create, update, patch, delete, list, watch.
Inside: validation and defaults (`rules`, `strategies`), admission (`admission`), patches, selectors,
garbage collection (`collector`), the served kinds (`kinds`) and the objects (`storage`).
Leaves: stored objects, watch events, and `errors.ApiError` with the API server's own messages.
"""
