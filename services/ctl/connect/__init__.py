"""Connections of commands to NATS.

In: `--nats-url`, `--directory` and the environment. `reader` opens a read-only connection that is cheap
to import; `bus` opens the services' own bus, for commands that need typed messages.
Out: a connection, or a `CommandError` that says what to do.
"""
