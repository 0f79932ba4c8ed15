"""Converts Kueue's kinds between `v1beta1` and `v1beta2`, without loss in either direction.

What enters: an object in one version.
What leaves: the object in the other version, with an annotation for what that version cannot say.
"""
