"""Worlds of a hub and its spokes."""
