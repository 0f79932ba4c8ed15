"""What a hostile colleague tries on the bus, and what comes of it.

Each attack is a row of one table: the threat that it belongs to, the way that it takes, and a function. It
runs against a real nats-server with the users, permissions and certificates that `deploy/` renders. A judge
compares the streams and consumers before and after. `python -m tests.attacks` prints one line for each.
"""
