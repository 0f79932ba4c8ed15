"""The Workload objects of one cluster, from the creation of a job to the deletion of what has ended.

Enters: workload states (what a job asks and how it is doing), admissions (what the quota service
decided) and check states.
Inside: `reconciler` brings one workload in line with its admission; `manifest`, `status`,
`check_states` and `status_events` say, without I/O, what its object must contain; `waiting_reasons`
and `retention` work in the background; `owner_notices` informs the object that created a job.
Leaves: Workload objects with their status, Kubernetes events, annotations on the owners of jobs, and outcomes
for the quota service.
"""
