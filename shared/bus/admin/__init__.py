"""What an operator, or a command of `sluice bus`, does to a NATS server.

The declarations in `deploy/nats` come in: streams, and who may publish and read what. Out go streams as
declared, accounts and permissions for the server's configuration, and snapshots of logs.
"""
