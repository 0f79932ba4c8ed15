"""Judges a history by its streams alone: the same for a simulated world and for a real one."""
