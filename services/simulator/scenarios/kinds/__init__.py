"""Worlds of the swarm in which other kinds play along: pods, groups of them, what makes pods, and documents.

Enters: a seed.
Inside: `load` draws the objects, `users` make, change and replace them, `scenario` puts them into a world.
Leaves: a verdict of the swarm's judges.
"""
