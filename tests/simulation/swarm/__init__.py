"""Worlds of all faults at once, their judges, and what these find."""
