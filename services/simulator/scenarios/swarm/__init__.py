"""A swarm of worlds on one cluster: each seed draws which faults and features it has.

Enters: a seed. Inside: `features` draws what is on, `load` makes the queues and jobs, `disturbances` acts
as users, disks and schedulers of processes do, `scenario` plays the world and judges it.
Leaves: a verdict; what it calls unsafe was found in the logs, in the views or in the cluster's own history.
"""
