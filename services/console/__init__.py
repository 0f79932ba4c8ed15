"""Shows people and programs what waits and why: a page, an HTTP API, and a service on NATS. It only reads."""
