"""The jobs behind the workloads of one cluster: PipelineRuns, Jobs, and kinds of Integrations.

Enters: the reconciler's calls, with a workload state and its admission.
Inside: `controller` releases, restores and suspends jobs; `stops` and `groups` stop them; `stop_marks` keeps
late releases and stops of other replicas from coming behind; `recreation` ends a job that cannot be suspended
and creates a waiting copy.
Leaves: patches of jobs, copies of jobs, events, and outcomes for the quota service.
"""
