"""Makes a process of a service.

Settings and a function that wires the service come in (`service.Program`). Signals, health endpoints,
certificates, web servers and a graceful stop come out; each service's `main` is one call of
`host.run_service`. `host.run_services` runs several services in one process.
"""
