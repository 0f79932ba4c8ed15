"""A world in which TaskRuns need machines: static hosts, a cloud, and failures of both.

Enters: a seed.
Inside: the provisioner and the patcher against a fake cloud and fake hosts (`scenario`), and runs whose
queue asks for machines before they start (`runs`).
Leaves: a verdict: limits kept, no key in any stream or log, no user left on a host.
"""
