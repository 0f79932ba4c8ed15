"""The messages that cross NATS, their subjects, and the kinds of work. The floor of the house."""
