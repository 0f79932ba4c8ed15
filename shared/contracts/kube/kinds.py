"""The Kubernetes kinds that Sluicegate reads or writes, each named once."""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Object: TypeAlias = Any
"""A Kubernetes object as JSON, not typed yet: `shared.contracts.kube.bodies` says what to write instead."""


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


def _kueue(plural: str, kind: str, *, namespaced: bool = False) -> Kind:
    return Kind(
        group="kueue.x-k8s.io", version="v1beta2", plural=plural, kind=kind, namespaced=namespaced
    )


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

PIPELINE_RUN: Final = Kind(
    group="tekton.dev", version="v1", plural="pipelineruns", kind="PipelineRun"
)
INTEGRATION: Final = Kind(
    group="sluicegate.dev",
    version="v1alpha1",
    plural="integrations",
    kind="Integration",
    namespaced=False,
)
TASK_RUN: Final = Kind(group="tekton.dev", version="v1", plural="taskruns", kind="TaskRun")
JOB: Final = Kind(group="batch", version="v1", plural="jobs", kind="Job")

NAMESPACE: Final = Kind(
    group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False
)
POD: Final = Kind(group="", version="v1", plural="pods", kind="Pod")
EVENT: Final = Kind(group="", version="v1", plural="events", kind="Event")
SECRET: Final = Kind(group="", version="v1", plural="secrets", kind="Secret")
CONFIG_MAP: Final = Kind(group="", version="v1", plural="configmaps", kind="ConfigMap")
NODE: Final = Kind(group="", version="v1", plural="nodes", kind="Node", namespaced=False)
PERSISTENT_VOLUME_CLAIM: Final = Kind(
    group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim"
)
STATEFUL_SET: Final = Kind(group="apps", version="v1", plural="statefulsets", kind="StatefulSet")
LIMIT_RANGE: Final = Kind(group="", version="v1", plural="limitranges", kind="LimitRange")
PRIORITY_CLASS: Final = Kind(
    group="scheduling.k8s.io",
    version="v1",
    plural="priorityclasses",
    kind="PriorityClass",
    namespaced=False,
)
RUNTIME_CLASS: Final = Kind(
    group="node.k8s.io",
    version="v1",
    plural="runtimeclasses",
    kind="RuntimeClass",
    namespaced=False,
)

MUTATING_WEBHOOK: Final = Kind(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="mutatingwebhookconfigurations",
    kind="MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOK: Final = Kind(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="validatingwebhookconfigurations",
    kind="ValidatingWebhookConfiguration",
    namespaced=False,
)
CUSTOM_RESOURCE_DEFINITION: Final = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
)
TOKEN_REVIEW: Final = Kind(
    group="authentication.k8s.io",
    version="v1",
    plural="tokenreviews",
    kind="TokenReview",
    namespaced=False,
)
SUBJECT_ACCESS_REVIEW: Final = Kind(
    group="authorization.k8s.io",
    version="v1",
    plural="subjectaccessreviews",
    kind="SubjectAccessReview",
    namespaced=False,
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
)
"""What decides about work, in the order in which a watcher lists it: before the work itself."""
