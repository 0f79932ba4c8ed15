"""Honest tenants beside one who writes whatever the API server, `edit` and our webhook let through.

Enters: a seed. Its world is played twice, with the adversary and without.
Inside: the queues and the honest load (`load`), a client that has a tenant's rights and no others
(`rights`), the adversary's writes (`jobs`, `runs`, `workloads`), and both plays (`scenario`).
Leaves: a verdict: what runs is counted or stopped, quotas hold, and honest tenants wait no longer.
"""
