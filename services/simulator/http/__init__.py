"""The simulated API server over HTTP, for kubectl and every other client.

Enters: requests with JSON, YAML or protobuf bodies.
Inside: an ASGI application (`application`), discovery, OpenAPI, token and access reviews, metrics,
watches, and the calls of admission webhooks that the cluster configures.
Leaves: JSON answers, tables for `kubectl get`, and streams of watch events.
"""
