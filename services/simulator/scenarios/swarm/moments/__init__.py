"""Faults that come at the worst moment for one mechanism, instead of at any time.

Enters: a world of the swarm, its decisions and its objects.
Inside: each module waits for its moment (a release, a refusal, a first message or an eviction is on its
way), and holds, pauses, deposes or kills whom it concerns.
Leaves: a world in which only that mechanism keeps things right.
"""
