"""The Kubernetes kinds that Sluicegate reads or writes, each named once."""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Object: TypeAlias = Any
"""A Kubernetes object, or a part of one, that a user wrote and nobody has validated, or of which no type says
the fields (a pod template, a schema): any field may have any type.

Read it with checks. What an API server sends as a whole is a `Body` (`shared.contracts.kube.bodies`).
"""


KUEUE_GROUP: Final = "kueue.x-k8s.io"
VISIBILITY_GROUP: Final = "visibility.kueue.x-k8s.io"
OUR_GROUP: Final = "sluicegate.dev"
"""API groups of Kueue's kinds, of its lists of waiting workloads, and of our kinds. Labels begin with the
first and the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A served resource: enough to build its URL and its subject."""

    group: str
    """Empty for the core group."""

    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`apiVersion` in a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def detail(self) -> str:
        """The last token of `sluice.observed.…`: ``<plural>_<group>``; ``pods_`` for core kinds."""
        return f"{self.plural}_{self.group.replace('.', '_')}"


def _kind(
    group: str, plural: str, kind: str, *, version: str = "v1", namespaced: bool = True
) -> Kind:
    return Kind(group=group, version=version, plural=plural, kind=kind, namespaced=namespaced)


def _kueue(plural: str, kind: str, *, namespaced: bool = False) -> Kind:
    return _kind(KUEUE_GROUP, plural, kind, version="v1beta2", namespaced=namespaced)


RESOURCE_FLAVOR: Final = _kueue("resourceflavors", "ResourceFlavor")
CLUSTER_QUEUE: Final = _kueue("clusterqueues", "ClusterQueue")
LOCAL_QUEUE: Final = _kueue("localqueues", "LocalQueue", namespaced=True)
COHORT: Final = _kueue("cohorts", "Cohort")
WORKLOAD: Final = _kueue("workloads", "Workload", namespaced=True)
WORKLOAD_PRIORITY_CLASS: Final = _kueue("workloadpriorityclasses", "WorkloadPriorityClass")
ADMISSION_CHECK: Final = _kueue("admissionchecks", "AdmissionCheck")
MULTIKUEUE_CONFIG: Final = _kueue("multikueueconfigs", "MultiKueueConfig")
MULTIKUEUE_CLUSTER: Final = _kueue("multikueueclusters", "MultiKueueCluster")
TOPOLOGY: Final = _kueue("topologies", "Topology")
PROVISIONING_REQUEST_CONFIG: Final = _kueue(
    "provisioningrequestconfigs", "ProvisioningRequestConfig"
)

CLUSTER_PROFILE: Final = _kind(
    "multicluster.x-k8s.io", "clusterprofiles", "ClusterProfile", version="v1alpha1"
)
PROVISIONING_REQUEST: Final = _kind(
    "autoscaling.x-k8s.io", "provisioningrequests", "ProvisioningRequest"
)

PIPELINE_RUN: Final = _kind("tekton.dev", "pipelineruns", "PipelineRun")
INTEGRATION: Final = _kind(
    OUR_GROUP, "integrations", "Integration", version="v1alpha1", namespaced=False
)
DEPARTURE: Final = _kind(OUR_GROUP, "departures", "Departure", version="v1alpha1")
"""No kind of an API server: the watcher tells so of a job that is gone, and has pods still, beside the next
one of its name. The name of a departure is the uid of that job."""

TASK_RUN: Final = _kind("tekton.dev", "taskruns", "TaskRun")
JOB: Final = _kind("batch", "jobs", "Job")

NAMESPACE: Final = _kind("", "namespaces", "Namespace", namespaced=False)
POD: Final = _kind("", "pods", "Pod")
POD_TEMPLATE: Final = _kind("", "podtemplates", "PodTemplate")
EVENT: Final = _kind("", "events", "Event")
SECRET: Final = _kind("", "secrets", "Secret")
CONFIG_MAP: Final = _kind("", "configmaps", "ConfigMap")
NODE: Final = _kind("", "nodes", "Node", namespaced=False)
PERSISTENT_VOLUME_CLAIM: Final = _kind("", "persistentvolumeclaims", "PersistentVolumeClaim")
NETWORK_POLICY: Final = _kind("networking.k8s.io", "networkpolicies", "NetworkPolicy")
ENDPOINT_SLICE: Final = _kind("discovery.k8s.io", "endpointslices", "EndpointSlice")
DEPLOYMENT: Final = _kind("apps", "deployments", "Deployment")
LEADER_WORKER_SET: Final = _kind("leaderworkerset.x-k8s.io", "leaderworkersets", "LeaderWorkerSet")
STATEFUL_SET: Final = _kind("apps", "statefulsets", "StatefulSet")
LIMIT_RANGE: Final = _kind("", "limitranges", "LimitRange")
PRIORITY_CLASS: Final = _kind(
    "scheduling.k8s.io", "priorityclasses", "PriorityClass", namespaced=False
)
RUNTIME_CLASS: Final = _kind("node.k8s.io", "runtimeclasses", "RuntimeClass", namespaced=False)

MUTATING_WEBHOOK: Final = _kind(
    "admissionregistration.k8s.io",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOK: Final = _kind(
    "admissionregistration.k8s.io",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
CUSTOM_RESOURCE_DEFINITION: Final = _kind(
    "apiextensions.k8s.io",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
TOKEN_REVIEW: Final = _kind(
    "authentication.k8s.io", "tokenreviews", "TokenReview", namespaced=False
)
SUBJECT_ACCESS_REVIEW: Final = _kind(
    "authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)

CONFIGURATION_KINDS: Final = (
    NAMESPACE,
    LIMIT_RANGE,
    RUNTIME_CLASS,
    PRIORITY_CLASS,
    RESOURCE_FLAVOR,
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    COHORT,
    WORKLOAD_PRIORITY_CLASS,
    ADMISSION_CHECK,
    MULTIKUEUE_CONFIG,
    MULTIKUEUE_CLUSTER,
    TOPOLOGY,
    PROVISIONING_REQUEST_CONFIG,
)
"""What decides about work, in the order in which a watcher lists it: before the work itself."""
