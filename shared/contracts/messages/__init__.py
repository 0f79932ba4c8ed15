"""Messages that cross NATS, one module for each family.

Each message is immutable, knows its stream, its subject and its type, and holds the whole state of what its
subject names. Readers ignore fields that they do not know, so a publisher may add one.
"""
