"""Names, labels and annotations that people and other programs rely on."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from shared.contracts.kube.kinds import KUEUE_GROUP

QUEUE: Final = "kueue.x-k8s.io/queue-name"
POD_SET_LABEL: Final = "kueue.x-k8s.io/podset"
CLUSTER_QUEUE_LABEL: Final = "kueue.x-k8s.io/cluster-queue-name"
LOCAL_QUEUE_LABEL: Final = "kueue.x-k8s.io/local-queue-name"
"""Labels of the pods of an admitted job: its pod set, and the queues that admitted it."""

PREBUILT_WORKLOAD: Final = "kueue.x-k8s.io/prebuilt-workload-name"
"""Label or annotation of a job: the name of its Workload. Of a copy: that of the hub's Workload."""

PRIORITY_CLASS_LABEL: Final = "kueue.x-k8s.io/priority-class"
DEFAULT_PRIORITY: Final = "kueue.x-k8s.io/default-priority"
"""Annotation of a LocalQueue: the priority of jobs that name no class. Ours; Kueue has none."""

CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
"""Label of a pod with the uid of its Job: the Job controller's."""

JOB_NAME: Final = "batch.kubernetes.io/job-name"
"""Label of a pod with the name of its Job: the Job controller's."""

DEFAULT_QUEUE: Final = "default"
"""The LocalQueue of jobs that name none, where a namespace has one of this name; Kueue's rule."""

DEFAULT_PRIORITY_CLASS: Final = "default"
"""The WorkloadPriorityClass of jobs that name none, where there is one of this name; Kueue's rule."""

LOST: Final = "sluicegate.dev/lost"
"""Annotation with a reason. Of a MultiKueueCluster: an operator declares that nothing runs there. Of an
AdmissionCheck: that its controller is gone, so that what it says of itself does not count."""

SPOKE_QUOTA: Final = "sluicegate.dev/spoke-quota"
"""Annotation of a MultiKueueCluster with a kubeconfig: who admits there, `hub` (this hub) or `kueue` (a Kueue
of that cluster)."""

ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
"""Label of a copy: the hub that owns it. Objects without it are never changed."""

MAX_EXECUTION: Final = "kueue.x-k8s.io/max-exec-time-seconds"
MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
ELASTIC_JOB: Final = "kueue.x-k8s.io/elastic-job"
"""Label or annotation, `"true"`: the job may change its size while it runs."""

EQUAL_COMPLETIONS: Final = "kueue.x-k8s.io/job-completions-equal-parallelism"
"""Annotation of a Job: partial admission changes `completions` together with `parallelism`."""

PROVISIONING_PREFIX: Final = "provreq.kueue.x-k8s.io/"
"""Prefix of annotations of a job that its ProvisioningRequests get; its Workload has them too."""

CONSUMED_ANNOTATION: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS_ANNOTATION: Final = "autoscaling.x-k8s.io/provisioning-class-name"
"""Annotations of pods that run on what was provisioned for them."""

MANAGED_LABEL: Final = "kueue.x-k8s.io/managed"
"""Label of an object that exists because of a Workload, with the value `"true"`."""

GROUP_WORKLOAD: Final = "kueue.x-k8s.io/is-group-workload"
"""Annotation of a Workload, `"true"`: it is that of a group of objects, whose name it has."""

PRIORITY_BOOST: Final = "kueue.x-k8s.io/priority-boost"
"""Annotation of a Workload: an integer that is added to its priority."""

POD_SET_TOPOLOGIES: Final = tuple(
    f"kueue.x-k8s.io/podset-{how}-topology" for how in ("preferred", "required", "unconstrained")
)
"""Annotations of a pod template: where its pods shall run together. At most one is allowed."""

POD_SET_SLICE_TOPOLOGY: Final = "kueue.x-k8s.io/podset-slice-required-topology"
POD_SET_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
POD_SET_SLICE_CONSTRAINTS: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
POD_SET_GROUP: Final = "kueue.x-k8s.io/podset-group-name"

GATED_BY: Final = "kueue.x-k8s.io/admission-gated-by"
"""Annotation of a job or Workload: names of controllers, separated by commas. It waits until it is gone."""

RESOURCE_IN_USE: Final = "kueue.x-k8s.io/resource-in-use"
"""Finalizer of Workloads that hold quota."""

QUEUED: Final = "sluicegate.dev/queued"
"""Annotation of whoever created a job that waits: its LocalQueue, and why."""

ON_PREEMPTION: Final = "sluicegate.dev/on-preemption"
"""Annotation of a LocalQueue, else of its ClusterQueue: what becomes of running jobs of a kind that
cannot be suspended. `Never` (the default): they are not preempted. `StopAndRecreate`: they are ended,
and a copy waits in their place."""

STOP_AND_RECREATE: Final = "StopAndRecreate"
NEVER: Final = "Never"

RECREATED_FROM: Final = "sluicegate.dev/recreated-from"
"""Annotation of a copy: the name of the job that was stopped for it, and the uid behind a slash."""

RECREATED_FIRST: Final = "sluicegate.dev/recreated-first"
"""Annotation of a copy: the name of the job that its user created."""

RECREATIONS: Final = "sluicegate.dev/recreations"
"""Annotation of a copy: how many were stopped before it."""

RECREATED_AS: Final = "sluicegate.dev/recreated-as"
"""Annotation of a job that was stopped: the name of its copy."""

STOPPED_BY: Final = "sluicegate.dev/stopped-by"
"""Annotation of a job: epoch, term and number of the decision by which it was stopped last. No release of
an earlier one comes behind it."""

REQUESTS_PREFIX: Final = "kueue.konflux-ci.dev/requests-"
"""Annotation of a PipelineRun: one unit of quota each, `…requests-linux-arm64: "1"`."""

REQUESTS_APPLIED: Final = "sluicegate.dev/requests-applied"
"""JSON, `{"<resource>": [before, after]}`: what a request annotation was (null: absent) before rules
added to it, and what they made of it. A webhook may be called twice for one object."""

TRUNCATED: Final = "sluicegate.dev/truncated"
"""Annotation of an observed object that was too large for a message; it tells the size. Only the message
has it, not the object in the cluster."""

SPOKE_LABEL: Final = "sluicegate.dev/spoke"
"""Label of a job, of a ResourceFlavor, or of a flavor's nodes: the workload must run on this spoke."""

JOB_UID_LABEL: Final = "kueue.x-k8s.io/job-uid"
"""Label of a Workload: the uid of its job."""

WORKLOAD_PRIORITY_SOURCE: Final = "kueue.x-k8s.io/workloadpriorityclass"
POD_PRIORITY_SOURCE: Final = "scheduling.k8s.io/priorityclass"
"""Values of `WorkloadState.priority_class_source`: which kind of class sets the priority."""

MACHINE_READY: Final = "sluicegate.dev/machine-ready"
"""Annotation of a build pod. A change makes the kubelet mount the secret at once."""

ADDED_RULES: Final = "sluicegate.dev/added-rules"
"""Annotation of the webhook's configuration: the kinds for which the patcher added rules, with commas."""

HOST_SECRET: Final = "sluicegate.dev/host-secret"  # noqa: S105 - a name, no secret
"""Annotation of a TaskRun: the uid of the Secret that the patcher made for it, and may delete."""

MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
PART_OF_LABEL: Final = "app.kubernetes.io/part-of"
"""Labels that say which program made an object, and of which application it is a part."""

EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"
"""Extension of a cluster in a kubeconfig that its plugin gets as `spec.cluster.config`: Kubernetes'."""

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""Label of a namespace with its name: the API server's."""

HOSTNAME: Final = "kubernetes.io/hostname"
"""Label of a node, and the smallest topology domain of affinity."""

REQUIRED_WHILE_SCHEDULING: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED_WHILE_SCHEDULING: Final = "preferredDuringSchedulingIgnoredDuringExecution"
"""Fields of node affinity, pod affinity and pod anti-affinity."""

FOREGROUND_DELETION: Final = "foregroundDeletion"
"""Kubernetes' finalizer of an object that waits for the deletion of what it owns."""

PVC_PROTECTION: Final = "kubernetes.io/pvc-protection"
"""Kubernetes' finalizer of a claim that pods name."""

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation in which `kubectl apply` keeps the whole manifest."""

TRACEPARENT_ANNOTATION: Final = "sluicegate.dev/traceparent"
"""W3C trace context of the workload's one trace, set once at admission."""

USER_PENDING: Final = "sluicegate.dev/user-pending"
"""`"true"`: the user created the run paused; Sluicegate admits it but never starts it."""

COSCHEDULE: Final = "sluicegate.dev/coschedule"

PAC_EVENT: Final = "pipelinesascode.tekton.dev/event-type"
PAC_TEST_EVENT: Final = "pac.test.appstudio.openshift.io/event-type"
"""Labels by which Pipelines as Code, and Konflux' integration tests, say what caused a run."""

MANAGED_BY_TEKTON: Final = "tekton.dev/pipeline"
"""`spec.managedBy` of a PipelineRun that Tekton runs here."""

OPERATOR_NAMESPACE: Final = "multi-platform-controller"
"""Namespace of the ConfigMap `host-config`, as in konflux-ci/multi-platform-controller."""

CLASSIFIER_WEBHOOK: Final = "sluicegate-classifier"
"""Name of the webhook configurations. Tekton's webhook sorts after it, so that it sees what we have set."""

PODS_WEBHOOK: Final = "sluicegate-classifier-pods"
"""Name of the webhook configuration that reviews pods, where they wait."""

WORKLOAD_NAME_MAX: Final = 253
"""Names of Workloads are DNS subdomains."""

DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN: Final = re.compile(rf"{DNS_LABEL.pattern}(\.{DNS_LABEL.pattern})*")
LABEL_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
"""What the API server accepts as DNS label, as DNS subdomain, and as name or value of a label; of any length.

https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

DNS_LABEL_MAX: Final = 63
"""The API server's limit, as of the name and of the value of a label."""

_HASH_LENGTH: Final = 5

PRIORITY_CLASS_SOURCES: Final[Mapping[str, tuple[str, str]]] = {
    WORKLOAD_PRIORITY_SOURCE: (KUEUE_GROUP, "WorkloadPriorityClass"),
    POD_PRIORITY_SOURCE: ("scheduling.k8s.io", "PriorityClass"),
}
"""`priorityClassSource` of a `v1beta1` Workload to group and kind of the class."""


def is_dns_label(text: str) -> bool:
    """Whether it is a DNS label that is not too long, as the name of a namespace must be."""
    return len(text) <= DNS_LABEL_MAX and DNS_LABEL.fullmatch(text) is not None


def slot_resource(platform: str) -> str:
    """The resource that slots of a platform are counted as: ``linux/x86_64`` gives ``linux-x86-64``.

    As the shipped rules ask for them, which replace what a resource's name must not contain.
    """
    return platform.replace("/", "-").replace("_", "-")


def kept_annotation(version: str) -> str:
    """The annotation that keeps what an object of `version` says and another version cannot say."""
    return f"sluicegate.dev/kept-from-{version}"


def may_be_of(workload: Mapping[str, Any], uid: str) -> bool:
    """Whether a Workload object may be that of the job `uid`: not where another job controls it.

    Copies of one job that follow each other on a spoke have Workloads of one name.
    """
    owners = workload["metadata"].get("ownerReferences") or []
    return all(owner.get("uid") in {None, uid} for owner in owners if owner.get("controller"))


def workload_name(*, kind: str, group: str, name: str, uid: str) -> str:
    """Name the Workload of a job as Kueue does: ``job-sample-3f2a1``."""
    digest = hashlib.sha1(f"{kind}\n{group}\n{name}\n{uid}".encode(), usedforsecurity=False)
    prefix = f"{kind.lower()}-{name}"[: WORKLOAD_NAME_MAX - 1 - _HASH_LENGTH]
    return f"{prefix}-{digest.hexdigest()[:_HASH_LENGTH]}"
