"""A world in which TaskRuns need machines: static hosts, a cloud, and failures of both.

Enters: a seed.
Inside: the provisioner and the patcher against a fake cloud and fake hosts (`scenario`), runs whose queue
asks for machines before they start (`runs`), and records that arrive behind those of the next leader
(`late_records`).
Leaves: a verdict: limits kept, no key in any stream or log, no user left on a host.
"""
