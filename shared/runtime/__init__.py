"""How a service becomes a process: signals, health endpoints, graceful stop."""
