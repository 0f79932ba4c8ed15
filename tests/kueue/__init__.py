"""Runs Kueue's integration suites with `sluice dev` in the place of its manager, and counts the result.

What enters is a tree of Kueue in which the suites are built and changed to start `sluice dev`; the tree and
its programs are not part of this repository. `not_applicable.yaml` fixes by name, before a run, which specs
do not count, and why. What leaves is one line for each spec that fails, and a last line with the counts.
"""
