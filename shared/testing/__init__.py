"""What tests of all services share.

Inside: fakes of the shared ports in a deterministic world (`world`), a real NATS server for one test
(`nats_server`), builders of messages (`builders`), and waits with one generous deadline (`waiting`).
Enters: what a test sets up. Leaves: ports that behave as the real ones, under contract tests.
"""
