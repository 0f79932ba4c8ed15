"""Work: entries of durable consumers, each handled once it can be.

Entries that the server hands out come in. A handler of the service gets them, one at a time for each key;
acknowledgements, heartbeats, delays and dead letters go out.
"""
