"""The bus: what services publish to, read from and agree by.

Messages of `shared.contracts.messages` go in, typed messages come out. `port` is the protocol, `nats` its
adapter over NATS JetStream (`shared.testing.world` has the one in memory), `follow` reads typed messages,
`leadership` makes one replica the leader. `admin` declares streams, accounts and permissions.
"""
