"""Streams, publishing, list-and-watch reading and durable work over NATS JetStream."""
