"""Every kind with its names, versions, columns, and the CustomResourceDefinition made of these.

Names and columns are those of Kueue, so that what people type and what they see stays the same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Final

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kueue.schema import ApiModel, Extra, Schema, structural

STORAGE: Final = "v1beta2"
V1BETA1: Final = "v1beta1"

_CONVERSION: Final[Object] = {
    "strategy": "Webhook",
    "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {"name": "classifier", "namespace": "sluicegate", "path": "/convert"}
        },
    },
}


def _at(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(f"shared.contracts.kueue.{module}"), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """A field of `v1beta1`'s spec that `v1beta2` says otherwise."""

    name: str
    now: str
    """How to say it, for the message of a cluster that cannot convert."""

    refused: str = ""
    """CEL over the spec: what of it cannot be taken as it is; empty for any use of the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One kind."""

    kind: Kind
    model: str
    """Of the storage version, as ``module:class`` of `shared.contracts.kueue`. It is imported when an object
    is of that kind, because commands are short."""

    short_names: tuple[str, ...]
    columns: tuple[Object, ...]
    older: str | None = None
    """Of `v1beta1`, where it is not the same."""

    older_columns: Mapping[str, str] = field(default_factory=dict)
    """JSON paths that are other ones in `v1beta1`, by column."""

    renamed: tuple[Renamed, ...] = ()
    has_status: bool = True
    selectable: tuple[str, ...] = ()
    rules: str | None = None
    older_rules: str | None = None
    """Rules of the whole object, by version, in the same way."""

    def model_of(self, version: str) -> type[ApiModel]:
        """The model of an object of `version`."""
        path = self.older if version == V1BETA1 and self.older is not None else self.model
        model: type[ApiModel] = _at(path)
        return model

    def rules_of(self, version: str) -> Extra | None:
        """Rules of a whole object of `version`, besides those of its fields."""
        path = self.older_rules if version == V1BETA1 else self.rules
        rules: Extra | None = None if path is None else _at(path)
        return rules

    @property
    def name(self) -> str:
        """Name of the CustomResourceDefinition."""
        return f"{self.kind.plural}.{self.kind.group}"


def crd(definition: Definition, *, webhook: bool) -> Object:
    """The CustomResourceDefinition.

    With a `webhook` each version has its own schema and the classifier converts. Without one, both
    have the schema of `v1beta2`, and `v1beta1` refuses the fields that it says otherwise: an API
    server that only rewrites `apiVersion` would drop them silently. A kind of our own has one version.
    """
    kind = definition.kind
    ours = kind.version != STORAGE
    webhook = webhook and not ours
    versions = [_version(definition, kind.version, _schema(definition, kind.version))]
    if not ours:
        older = _schema(definition, V1BETA1) if webhook else _refusing(definition)
        versions.append(_version(definition, V1BETA1, older))
    metadata: Object = {"name": definition.name}
    if webhook:
        metadata["annotations"] = {"cert-manager.io/inject-ca-from": "sluicegate/classifier"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": _names(definition, "sluicegate" if ours else "kueue"),
            "conversion": _CONVERSION if webhook else {"strategy": "None"},
            "versions": versions,
        },
    }


def _names(definition: Definition, category: str) -> Object:
    kind = definition.kind
    return {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "shortNames": list(definition.short_names),
        "categories": [category],
    }


def _version(definition: Definition, name: str, schema: Schema) -> Object:
    storage = name == definition.kind.version
    version: Object = {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": list(_columns(definition, storage=storage)),
    }
    if not storage:
        version["deprecated"] = True
        version["deprecationWarning"] = (
            f"{definition.kind.group}/{name} {definition.kind.kind} is an older version of the "
            f"same; write {definition.kind.group}/{STORAGE}"
        )
    if definition.has_status:
        version["subresources"] = {"status": {}}
    if storage and definition.selectable:
        # Where all versions select by the same fields but differ in schema, servers refuse it all.
        version["selectableFields"] = [{"jsonPath": path} for path in definition.selectable]
    return version


def _columns(definition: Definition, *, storage: bool) -> Iterator[Object]:
    for column in definition.columns:
        path = column["jsonPath"]
        if not storage:
            path = definition.older_columns.get(column["name"], path)
        yield {**column, "jsonPath": path}


def _schema(definition: Definition, version: str) -> Schema:
    extra = definition.rules_of(version)
    return {**structural(definition.model_of(version)), **(extra.keys if extra else {})}


def _refusing(definition: Definition) -> Schema:
    """`v1beta2`'s schema with what `v1beta1` calls otherwise, which is refused by name."""
    schema = _schema(definition, STORAGE)
    if not definition.renamed:
        return schema
    older = _schema(definition, V1BETA1)["properties"]["spec"]["properties"]
    spec = schema["properties"]["spec"]
    refusals = []
    for renamed in definition.renamed:
        spec["properties"][renamed.name] = older[renamed.name]
        refusals.append(
            {
                "rule": renamed.refused or f"!has(self.{renamed.name})",
                "message": f"{renamed.name} cannot be converted without a webhook; {renamed.now}",
            }
        )
    spec["x-kubernetes-validations"] = [*spec.get("x-kubernetes-validations", ()), *refusals]
    # Who writes the older version may know the older fields only.
    spec.pop("required", None)
    return schema


def _column(name: str, path: str, why: str, type_: str = "string", priority: int = 0) -> Object:
    column: dict[str, Any] = {"name": name, "type": type_, "jsonPath": path, "description": why}
    if priority:
        column["priority"] = priority
    return column


def _condition(name: str, of: str, why: str, priority: int = 0) -> Object:
    return _column(name, f".status.conditions[?(@.type=='{of}')].status", why, priority=priority)


_AGE: Final = _column("Age", ".metadata.creationTimestamp", "Since when it exists", "date")
_PENDING: Final = _column(
    "Pending Workloads", ".status.pendingWorkloads", "Workloads that wait", "integer"
)


def _admitted(priority: int = 0) -> Object:
    return _column(
        "Admitted Workloads",
        ".status.admittedWorkloads",
        "Workloads that run and have not finished",
        "integer",
        priority,
    )


_SAME: Final = "write whenCanBorrow: MayStopSearch and whenCanPreempt: MayStopSearch in their place"

DEFINITIONS: Final = (
    Definition(
        kind=kinds.RESOURCE_FLAVOR,
        model="flavors:ResourceFlavor",
        short_names=("rf", "flavor", "flavors"),
        has_status=False,
        columns=(
            _column("Topology", ".spec.topologyName", "By which its machines are grouped"),
            _AGE,
        ),
    ),
    Definition(
        kind=kinds.CLUSTER_QUEUE,
        model="quotas:ClusterQueue",
        older="v1beta1:ClusterQueue",
        short_names=("cq",),
        columns=(
            _column("Cohort", ".spec.cohortName", "With which it shares quota"),
            _column("Strategy", ".spec.queueingStrategy", "How its line moves", priority=1),
            _PENDING,
            _admitted(priority=1),
        ),
        older_columns={"Cohort": ".spec.cohort"},
        renamed=(
            Renamed(name="cohort", now="write v1beta2's cohortName"),
            Renamed(name="admissionChecks", now="write admissionChecksStrategy"),
            Renamed(
                name="flavorFungibility",
                now=_SAME,
                refused="!has(self.flavorFungibility) || "
                "(self.flavorFungibility.whenCanBorrow != 'Borrow' && "
                "self.flavorFungibility.whenCanPreempt != 'Preempt')",
            ),
        ),
    ),
    Definition(
        kind=kinds.LOCAL_QUEUE,
        model="quotas:LocalQueue",
        older="v1beta1:LocalQueue",
        short_names=("queue", "queues", "lq"),
        columns=(
            _column("ClusterQueue", ".spec.clusterQueue", "Which admits its workloads"),
            _PENDING,
            _admitted(),
        ),
    ),
    Definition(
        kind=kinds.COHORT,
        model="quotas:Cohort",
        older="v1beta1:Cohort",
        short_names=("co",),
        columns=(
            _column("Parent", ".spec.parentName", "The cohort above"),
            _column(
                "Weighted Share",
                ".status.fairSharing.weightedShare",
                "What it borrows, by its weight",
                "integer",
                1,
            ),
            _AGE,
        ),
    ),
    Definition(
        kind=kinds.WORKLOAD_PRIORITY_CLASS,
        model="flavors:WorkloadPriorityClass",
        short_names=("wpc",),
        has_status=False,
        columns=(_column("Value", ".value", "The higher, the earlier", "integer"),),
    ),
    Definition(
        kind=kinds.WORKLOAD,
        model="workloads:Workload",
        older="v1beta1:Workload",
        rules="workloads:WORKLOAD_RULES",
        older_rules="v1beta1:WORKLOAD_RULES",
        short_names=("kwl", "kueueworkload", "kueueworkloads"),
        columns=(
            _column("Queue", ".spec.queueName", "The LocalQueue that it waits in"),
            _column("Reserved in", ".status.admission.clusterQueue", "Whose quota it holds"),
            _condition("Admitted", "Admitted", "Whether it may run"),
            _condition("Finished", "Finished", "Whether it has finished"),
            _AGE,
        ),
        selectable=(".status.admission.clusterQueue",),
        renamed=(
            Renamed(name="priorityClassName", now="write v1beta2's priorityClassRef"),
            Renamed(
                name="priorityClassSource",
                now="write v1beta2's priorityClassRef",
                refused="!has(self.priorityClassSource) || self.priorityClassSource == ''",
            ),
        ),
    ),
    Definition(
        kind=kinds.ADMISSION_CHECK,
        model="checks:AdmissionCheck",
        older="v1beta1:AdmissionCheck",
        short_names=("ac",),
        columns=(
            _column("Controller", ".spec.controllerName", "Who answers the check"),
            _condition("Active", "Active", "Whether it is answered"),
            _AGE,
        ),
    ),
    Definition(
        kind=kinds.MULTIKUEUE_CONFIG,
        model="checks:MultiKueueConfig",
        older="v1beta1:MultiKueueConfig",
        short_names=("mkconf",),
        has_status=False,
        columns=(
            _column("Clusters", ".spec.clusters", "Where workloads may be sent"),
            _AGE,
        ),
    ),
    Definition(
        kind=kinds.MULTIKUEUE_CLUSTER,
        model="checks:MultiKueueCluster",
        older="v1beta1:MultiKueueCluster",
        short_names=("mkc",),
        columns=(_condition("Connected", "Active", "Whether it is reached"), _AGE),
        renamed=(
            Renamed(name="kubeConfig", now="write v1beta2's clusterSource.kubeConfig"),
            Renamed(
                name="clusterProfileRef", now="write v1beta2's clusterSource.clusterProfileRef"
            ),
        ),
    ),
    Definition(
        kind=kinds.PROVISIONING_REQUEST_CONFIG,
        model="checks:ProvisioningRequestConfig",
        short_names=("prc",),
        has_status=False,
        columns=(
            _column("Class", ".spec.provisioningClassName", "How machines are made"),
            _AGE,
        ),
    ),
    Definition(
        kind=kinds.TOPOLOGY,
        model="flavors:Topology",
        short_names=("topo",),
        has_status=False,
        columns=(
            _column("Highest Level", ".spec.levels[0].nodeLabel", "Label of the largest groups"),
            _AGE,
        ),
    ),
)
"""Kueue's kinds, in the order in which they are applied."""

ALL_DEFINITIONS: Final = (
    *DEFINITIONS,
    Definition(
        kind=kinds.INTEGRATION,
        model="integrations:Integration",
        short_names=("integ",),
        columns=(
            _column("Kind", ".spec.kind.kind", "Of which it speaks"),
            _column("Group", ".spec.kind.group", "Of that kind"),
            _condition("Active", "Active", "Whether it is in force as it stands"),
            _AGE,
        ),
    ),
)
"""All kinds, with our own."""


def definition_of(group: str, plural: str) -> Definition | None:
    """The definition of a kind of ours; None: it is another one."""
    resource = (group, plural)
    return next((d for d in ALL_DEFINITIONS if (d.kind.group, d.kind.plural) == resource), None)


@cache
def shipped_schema(group: str, plural: str, version: str) -> Schema | None:
    """The OpenAPI schema of a kind of ours in one of its versions; None: there is none."""
    definition = definition_of(group, plural)
    if definition is not None:
        for served in crd(definition, webhook=True)["spec"]["versions"]:
            if served["name"] == version:
                schema: Schema = served["schema"]["openAPIV3Schema"]
                return schema
    return None
