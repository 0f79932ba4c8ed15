"""The jobs behind the workloads of one cluster: PipelineRuns, Jobs, and kinds of Integrations.

Enters: the reconciler's calls, with a workload state and its admission.
Inside: `controller` releases, stops, restores and suspends jobs; `recreation` ends a job that cannot be
suspended and creates a waiting copy; `owner_notices` informs the object that created a job.
Leaves: patches of jobs, copies of jobs, events and annotations on their owners, and outcomes for the
quota service.
"""
