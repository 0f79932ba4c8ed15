"""Worlds of each kind of work, from its creation to its end."""
