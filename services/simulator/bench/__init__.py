"""Replays the reference's scalability runner against any cluster, as a client of its API server."""
