"""The bus over NATS JetStream.

`bus.NatsBus` keeps `shared.bus.port.Bus`: it publishes in order with retries, reads logs and views over
reconnects, holds leases, keeps large bodies in the object store and answers requests. Calls of services
come in; requests of the JetStream API and pipelined publishes go out.
"""
