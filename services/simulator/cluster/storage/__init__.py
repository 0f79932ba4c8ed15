"""The objects of a cluster, their resource version, and their recent changes.

Enters: whole objects that passed all checks; nothing is validated here.
Inside: a store that numbers each change, lists that stay consistent over their pages, and watches.
Leaves: objects as they were at one resource version, and events in the order of the changes.
"""
