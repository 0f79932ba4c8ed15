"""The controllers of a simulated cluster.

Inside: a namespace controller, the Job, JobSet and StatefulSet controllers, Tekton's controllers and
webhook, and a scheduler with kubelets and an autoscaler. Annotations (`simulated_behaviour`) say
how long an object runs and how it ends.
Enters: changes of objects in a `cluster.storage.store.Store`.
Leaves: writes through `cluster.api.Api`: new pods and TaskRuns, statuses, deletions.
"""
