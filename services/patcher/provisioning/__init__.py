"""The admission check `kueue.x-k8s.io/provisioning-request`: the cluster autoscaler provides first.

Enters: AdmissionChecks of that controller, their `ProvisioningRequestConfig`, the Workloads that hold quota
and wait for such a check, and the `ProvisioningRequest`s made for them. Leaves: a `ProvisioningRequest` with
its `PodTemplate`s for each attempt, the check's state in the Workload's status, and the condition `Active`
of the AdmissionCheck. Nothing goes over the bus: quota reads the answer as it reads those of others.
"""
