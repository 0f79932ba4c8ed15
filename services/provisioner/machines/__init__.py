"""Machines at a provider, from the order to the proof that they are gone.

Enters: the record of a machine, and what its provider answers. Leaves: orders, terminations, and
observations for the next round of allocation. The sweep finds machines that no record knows.
"""
