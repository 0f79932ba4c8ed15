"""AdmissionCheck, MultiKueueConfig, MultiKueueCluster and ProvisioningRequestConfig of `v1beta2`."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from shared.contracts.kueue.fields import Conditions, DnsLabel, DnsName, Int32, LabelKey, Metadata
from shared.contracts.kueue.schema import ApiModel, defaulted, keyed, listed, rules

ClusterName = Annotated[str, StringConstraints(max_length=256)]


Clusters = Annotated[
    list[ClusterName],
    Field(min_length=1, max_length=20),
    listed("atomic"),
    rules(("self.all(a, self.exists_one(b, b == a))", "must be unique")),
]


class ObjectStatus(ApiModel):
    """Where the object stands."""

    conditions: Conditions | None = None
    """`Active` says whether it can be used, and why not."""


class ParametersRef(ApiModel):
    """An object with the check's parameters."""

    api_group: Annotated[DnsName, StringConstraints(min_length=1)]
    """Its group."""

    kind: Annotated[
        str,
        StringConstraints(pattern=r"^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=63),
    ]
    """Its kind."""

    name: Annotated[DnsLabel, StringConstraints(min_length=1)]
    """Its name."""


class AdmissionCheckSpec(ApiModel):
    """Who checks what."""

    controller_name: Annotated[
        str,
        StringConstraints(min_length=1, max_length=253),
        rules(("self == oldSelf", "field is immutable")),
    ]
    """The program that answers this check; cannot be changed."""

    parameters: ParametersRef | None = None
    """What the program needs to know."""


class AdmissionCheck(ApiModel):
    """Something outside of quota that must be ready before a workload runs."""

    metadata: Metadata
    spec: AdmissionCheckSpec | None = None
    """Who checks what."""

    status: ObjectStatus | None = None
    """Written by the program that answers the check."""


class MultiKueueConfigSpec(ApiModel):
    """The clusters among which workloads are distributed."""

    clusters: Clusters
    """Names of MultiKueueCluster objects, in order of preference."""

    quota_management: Literal["Manual", "Automated"] | None = None
    """Whether the queues' quotas here are kept by hand or follow those of the clusters."""


class MultiKueueConfig(ApiModel):
    """Parameters of an AdmissionCheck that sends workloads to other clusters."""

    metadata: Metadata
    spec: MultiKueueConfigSpec | None = None
    """The clusters."""


class KubeConfig(ApiModel):
    """Where the kubeconfig of a cluster is."""

    location: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    """Name of a Secret in Sluicegate's namespace (key `kubeconfig`), or path of a file."""

    location_type: Literal["Secret", "Path"] = "Secret"
    """Which of the two."""


class ClusterProfileRef(ApiModel):
    """A ClusterProfile that says how to reach the cluster."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    """Its name."""


class ClusterSource(ApiModel):
    """How the cluster is reached; exactly one of the ways."""

    kube_config: KubeConfig | None = None
    """By a kubeconfig."""

    cluster_profile_ref: ClusterProfileRef | None = None
    """By a ClusterProfile."""


class MultiKueueClusterSpec(ApiModel):
    """How the cluster is reached."""

    cluster_source: Annotated[
        ClusterSource,
        rules(
            (
                "has(self.kubeConfig) != has(self.clusterProfileRef)",
                "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
            )
        ),
    ]
    """The way to it."""


class MultiKueueCluster(ApiModel):
    """A cluster that runs workloads admitted here."""

    metadata: Metadata
    spec: MultiKueueClusterSpec | None = None
    """How it is reached."""

    status: ObjectStatus | None = None
    """Written by the dispatcher."""


class RetryStrategy(ApiModel):
    """What to do after a failed request for machines."""

    backoff_limit_count: Annotated[Int32, defaulted(3)] | None = None
    """How often to try again."""

    backoff_base_seconds: Annotated[Int32, defaulted(60)] | None = None
    """How long to wait the first time; twice as long each time after."""

    backoff_max_seconds: Annotated[Int32, defaulted(1800)] | None = None
    """How long to wait at most."""


class SelectorUpdate(ApiModel):
    """A node selector whose value only the provisioned machines know."""

    key: LabelKey
    """The label."""

    value_from_provisioning_class_detail: Annotated[
        str, StringConstraints(min_length=1, max_length=32768)
    ]
    """The key of the request's provisioning class details that holds the value."""


class ProvisioningPodSetUpdates(ApiModel):
    """What pods get so that they land on the machines that were made for them."""

    node_selector: Annotated[list[SelectorUpdate], Field(max_length=8), keyed("key")] | None = None
    """Node selectors."""


class ProvisioningRequestConfigSpec(ApiModel):
    """How machines are requested."""

    provisioning_class_name: Annotated[DnsName, StringConstraints(min_length=1)]
    """The way of provisioning, one that the autoscaler knows."""

    parameters: (
        Annotated[
            dict[str, Annotated[str, StringConstraints(max_length=255)]], Field(max_length=100)
        ]
        | None
    ) = None
    """Passed on to the autoscaler."""

    managed_resources: (
        Annotated[
            list[Annotated[str, StringConstraints(max_length=317)]],
            Field(max_length=100),
            listed("set"),
        ]
        | None
    ) = None
    """Only pod sets that ask for one of these get machines so; absent for all pod sets."""

    retry_strategy: (
        Annotated[
            RetryStrategy,
            defaulted(
                {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}
            ),
        ]
        | None
    ) = None
    """What to do after a failure."""

    pod_set_updates: ProvisioningPodSetUpdates | None = None
    """What the pods get."""

    pod_set_merge_policy: (
        Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"] | None
    ) = None
    """Which pod sets are requested as one; absent for none."""


class ProvisioningRequestConfig(ApiModel):
    """Parameters of an AdmissionCheck that has machines made."""

    metadata: Metadata
    spec: ProvisioningRequestConfigSpec | None = None
    """How machines are requested."""
