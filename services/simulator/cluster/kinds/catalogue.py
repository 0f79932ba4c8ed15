"""The kinds that a cluster serves from the start, with the names that their projects publish."""

from typing import Final

from services.simulator.cluster.kinds import summaries
from services.simulator.cluster.kinds.registry import AGE, Column, Kind, column_from
from shared.contracts.kube.kinds import INTEGRATION
from shared.contracts.kueue.definitions import ALL_DEFINITIONS, STORAGE, V1BETA1, Definition


def _condition(type_: str, field: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{type_}")].{field}'


NAMESPACES: Final = Kind(
    kind="Namespace",
    plural="namespaces",
    namespaced=False,
    short_names=("ns",),
    columns=(Column(name="Status", path=".status.phase"), AGE),
    selectable=("status.phase",),
    generation=False,
)
PODS: Final = Kind(
    kind="Pod",
    plural="pods",
    short_names=("po",),
    categories=("all",),
    columns=(
        Column(name="Ready", path=".status.containerStatuses", value=summaries.pod_ready),
        Column(name="Status", path=".status.phase", value=summaries.pod_status),
        Column(name="Restarts", path=".status.containerStatuses", value=summaries.pod_restarts),
        AGE,
        Column(name="IP", path=".status.podIP", priority=1),
        Column(name="Node", path=".spec.nodeName", priority=1),
    ),
    selectable=("spec.nodeName", "status.phase", "spec.schedulerName", "spec.restartPolicy"),
)
SECRETS: Final = Kind(
    kind="Secret",
    plural="secrets",
    has_status=False,
    columns=(Column(name="Type", path=".type"), AGE),
    selectable=("type",),
    generation=False,
)
NODES: Final = Kind(
    kind="Node",
    plural="nodes",
    namespaced=False,
    short_names=("no",),
    columns=(
        Column(name="Status", path=".status.conditions", value=summaries.node_status),
        Column(name="Roles", path=".metadata.labels", value=summaries.node_roles),
        AGE,
        Column(name="Version", path=".status.nodeInfo.kubeletVersion"),
        Column(name="OS-Image", path=".status.nodeInfo.osImage", priority=1),
    ),
    selectable=("spec.unschedulable",),
    generation=False,
)
CONFIG_MAPS: Final = Kind(
    kind="ConfigMap",
    plural="configmaps",
    has_status=False,
    short_names=("cm",),
    generation=False,
)
CLAIMS: Final = Kind(
    kind="PersistentVolumeClaim",
    plural="persistentvolumeclaims",
    short_names=("pvc",),
    generation=False,
)
STATEFUL_SETS: Final = Kind(
    group="apps",
    kind="StatefulSet",
    plural="statefulsets",
    short_names=("sts",),
    categories=("all",),
)
DEPLOYMENTS: Final = Kind(
    group="apps", kind="Deployment", plural="deployments", short_names=("deploy",)
)
EVENT_FIELDS: Final = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "regarding.name",
    "regarding.kind",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
CORE: Final = (
    NAMESPACES,
    PODS,
    SECRETS,
    NODES,
    Kind(
        kind="Event",
        plural="events",
        has_status=False,
        short_names=("ev",),
        columns=(
            Column(name="Last Seen", path=".lastTimestamp", type="date"),
            Column(name="Type", path=".type"),
            Column(name="Reason", path=".reason"),
            Column(name="Object", path=".involvedObject.name"),
            Column(name="Message", path=".message"),
        ),
        selectable=EVENT_FIELDS,
        generation=False,
    ),
    CONFIG_MAPS,
    Kind(
        kind="Service",
        plural="services",
        short_names=("svc",),
        categories=("all",),
        columns=(Column(name="Type", path=".spec.type"), AGE),
        generation=False,
    ),
    Kind(
        kind="LimitRange",
        plural="limitranges",
        has_status=False,
        short_names=("limits",),
        generation=False,
    ),
    Kind(
        kind="ServiceAccount",
        plural="serviceaccounts",
        has_status=False,
        short_names=("sa",),
        generation=False,
    ),
    CLAIMS,
    Kind(kind="PodTemplate", plural="podtemplates", has_status=False),
)

JOBS: Final = Kind(
    group="batch",
    kind="Job",
    plural="jobs",
    categories=("all",),
    columns=(
        Column(name="Suspended", path=".spec.suspend"),
        Column(name="Active", path=".status.active", type="integer"),
        Column(name="Succeeded", path=".status.succeeded", type="integer"),
        Column(name="Completions", path=".spec.completions", type="integer"),
        AGE,
    ),
    selectable=("status.successful",),
)

_RUN_COLUMNS: Final = (
    Column(name="Succeeded", path=_condition("Succeeded")),
    Column(name="Reason", path=_condition("Succeeded", "reason")),
    Column(name="StartTime", path=".status.startTime", type="date"),
    Column(name="CompletionTime", path=".status.completionTime", type="date"),
)
_TEKTON: Final = ("tekton", "tekton-pipelines")
PIPELINERUNS: Final = Kind(
    group="tekton.dev",
    kind="PipelineRun",
    plural="pipelineruns",
    short_names=("pr", "prs"),
    categories=_TEKTON,
    columns=_RUN_COLUMNS,
    custom=True,
)
TASKRUNS: Final = Kind(
    group="tekton.dev",
    kind="TaskRun",
    plural="taskruns",
    short_names=("tr", "trs"),
    categories=_TEKTON,
    columns=_RUN_COLUMNS,
    custom=True,
)
TEKTON: Final = (
    PIPELINERUNS,
    TASKRUNS,
    Kind(
        group="tekton.dev",
        kind="Pipeline",
        plural="pipelines",
        categories=_TEKTON,
        has_status=False,
        custom=True,
    ),
    Kind(
        group="tekton.dev",
        kind="Task",
        plural="tasks",
        categories=_TEKTON,
        has_status=False,
        custom=True,
    ),
)


def _cluster(
    group: str,
    kind: str,
    plural: str,
    *short_names: str,
    has_status: bool = False,
    columns: tuple[Column, ...] = (AGE,),
) -> Kind:
    return Kind(
        group=group,
        kind=kind,
        plural=plural,
        namespaced=False,
        has_status=has_status,
        short_names=short_names,
        columns=columns,
    )


RBAC: Final = "rbac.authorization.k8s.io"
CLUSTER_ROLES: Final = _cluster(RBAC, "ClusterRole", "clusterroles")
CLUSTER_ROLE_BINDINGS: Final = _cluster(RBAC, "ClusterRoleBinding", "clusterrolebindings")
ROLES: Final = Kind(group=RBAC, kind="Role", plural="roles", has_status=False, generation=False)
ROLE_BINDINGS: Final = Kind(
    group=RBAC,
    kind="RoleBinding",
    plural="rolebindings",
    has_status=False,
    generation=False,
)

REST: Final = (
    STATEFUL_SETS,
    DEPLOYMENTS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    ROLES,
    ROLE_BINDINGS,
    Kind(
        group="coordination.k8s.io",
        kind="Lease",
        plural="leases",
        has_status=False,
        columns=(Column(name="Holder", path=".spec.holderIdentity"), AGE),
        generation=False,
    ),
    Kind(
        group="events.k8s.io",
        kind="Event",
        plural="events",
        has_status=False,
        short_names=("ev",),
        columns=(
            Column(name="Type", path=".type"),
            Column(name="Reason", path=".reason"),
            Column(name="Object", path=".regarding.name"),
            Column(name="Message", path=".note"),
        ),
        selectable=EVENT_FIELDS,
        generation=False,
    ),
    _cluster(
        "scheduling.k8s.io",
        "PriorityClass",
        "priorityclasses",
        "pc",
        columns=(Column(name="Value", path=".value", type="integer"), AGE),
    ),
    _cluster("node.k8s.io", "RuntimeClass", "runtimeclasses"),
    _cluster(
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
    ),
    _cluster(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    ),
    _cluster(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "crd",
        "crds",
        has_status=True,
    ),
)


def _defined(definition: Definition) -> Kind:
    kind = definition.kind
    ours = kind.group == INTEGRATION.group
    return Kind(
        group=kind.group,
        versions=(kind.version,) if ours else (STORAGE, V1BETA1),
        kind=kind.kind,
        plural=kind.plural,
        namespaced=kind.namespaced,
        has_status=definition.has_status,
        short_names=definition.short_names,
        categories=("sluicegate" if ours else "kueue",),
        columns=tuple(column_from(column) for column in definition.columns),
        selectable=tuple(path.lstrip(".") for path in definition.selectable),
        custom=True,
    )


DEFINED: Final = tuple(_defined(definition) for definition in ALL_DEFINITIONS)
"""Kueue's kinds and our own, with the columns of their CustomResourceDefinitions."""

JOB_SETS: Final = Kind(
    group="jobset.x-k8s.io",
    versions=("v1alpha2",),
    kind="JobSet",
    plural="jobsets",
    columns=(
        Column(name="TerminalState", path=_condition("Completed")),
        Column(name="Suspended", path=".spec.suspend", type="boolean"),
        AGE,
    ),
    custom=True,
)

BUILT_IN: Final = (*CORE, JOBS, JOB_SETS, *TEKTON, *REST, *DEFINED)
