"""The JSON documents of the API. The OpenAPI document is made from these models."""

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from shared.contracts.kube.kinds import VISIBILITY_GROUP
from shared.contracts.messages.explain import Explanation
from shared.contracts.reasons import WorkloadStatus

VISIBILITY_VERSIONS: Final = ("v1beta2", "v1beta1")
LIMIT_DEFAULT: Final = 1000
LIMIT_MAX: Final = 100_000
MANIFESTS_MAX: Final = 1000
"""What one request may ask for or change: its answer fits in memory, and its simulation ends in time."""


class Document(BaseModel):
    """Base of all documents: immutable, camel case in JSON."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    def wire(self) -> dict[str, Any]:
        """The document as JSON, without fields that are None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


# Kueue's visibility API --------------------------------------------------------------------------


class Owner(Document):
    """`metav1.OwnerReference`."""

    api_version: str
    kind: str
    name: str
    uid: str


class ItemMeta(Document):
    """The fields of `metav1.ObjectMeta` that Kueue's visibility API fills in."""

    name: str
    namespace: str
    creation_timestamp: datetime
    owner_references: list[Owner] = []


class PendingWorkload(Document):
    """One waiting workload."""

    metadata: ItemMeta
    priority: int
    local_queue_name: str
    position_in_cluster_queue: int
    """From 0, as in Kueue."""

    position_in_local_queue: int


class PendingWorkloadsSummary(Document):
    """The workloads that wait in one queue, in the order of admission."""

    kind: Literal["PendingWorkloadsSummary"] = "PendingWorkloadsSummary"
    api_version: str = f"{VISIBILITY_GROUP}/{VISIBILITY_VERSIONS[0]}"
    metadata: dict[str, str] = {}
    items: list[PendingWorkload] = []


# Ours --------------------------------------------------------------------------------------------


class ResourceRow(Document):
    """One resource of one flavor. Canonical quantities."""

    name: str
    nominal: str | None = None
    """Nominal quota. None for a LocalQueue, which has no quota of its own."""

    reserved: str = "0"
    borrowed: str = "0"
    share: float | None = None
    """Reserved quota divided by nominal quota; 1 where the nominal quota is 0 and something is reserved."""


class FlavorRow(Document):
    """The resources of one flavor."""

    name: str
    resources: list[ResourceRow]


class QueueRow(Document):
    """A ClusterQueue or a LocalQueue with its counts."""

    kind: Literal["ClusterQueue", "LocalQueue"]
    cluster: str
    namespace: str | None = None
    name: str
    cohort: str | None = None
    cohorts: list[str] = []
    """The cohort of a ClusterQueue, its parent, and so on to the root."""

    cluster_queue: str | None = None
    """The ClusterQueue of a LocalQueue."""

    active: bool | None = None
    """None until the quota service has published a status."""

    reason: str = ""
    message: str = ""
    remedy: str = ""
    """What makes an inactive queue active again, as `sluice doctor` says it."""

    pending: int | None = None
    reserving: int | None = None
    admitted: int | None = None
    flavors: list[FlavorRow] = []
    configuration: dict[str, str] = {}
    """How a ClusterQueue is configured beside its quotas: what it is about, to what is set."""

    advice: list[str] = []
    """What surprises people about that, and what to change."""


class Job(Document):
    """The job that owns a workload."""

    kind: str
    name: str


class WorkloadRow(Document):
    """A workload with its requests and its state."""

    cluster: str
    namespace: str
    name: str
    job: Job | None = None
    queue: str = ""
    cluster_queue: str = ""
    priority: int = 0
    status: WorkloadStatus
    reason: str = ""
    message: str = ""
    asks: dict[str, str] = {}
    """Resource to quantity, summed over all pods."""

    spoke: str | None = None
    copied: bool | None = None
    """True: a copy on a spoke, of a workload of the same name in the hub's cluster."""

    created_at: datetime
    admitted_at: datetime | None = None
    evicted_at: datetime | None = None
    """When it was evicted last; None once it has quota again."""

    finished_at: datetime | None = None
    succeeded: bool | None = None


class QueueList(Document):
    """The queues that the user may see."""

    version: int
    """Version of the view; it grows with each change."""

    items: list[QueueRow]


class WorkloadList(Document):
    """The workloads that the user may see: waiting ones first, then the youngest first."""

    version: int
    items: list[WorkloadRow]
    omitted: int = 0
    """How many more workloads there are."""


class Explained(Document):
    """Why workloads of one name wait: one item for each cluster that has such a workload."""

    items: list[Explanation]


class QuotaChange(Document):
    """Another nominal quota of a ClusterQueue."""

    cluster_queue: str
    flavor: str
    resource: str
    nominal_quota: str


class SimulateRequest(Document):
    """A change to try out."""

    cluster: str | None = None
    """The cluster that the change is for; None: the one that the console runs in."""

    manifests: list[dict[str, Any]] = Field(default=[], max_length=MANIFESTS_MAX)
    """Objects to apply: queues, flavors, cohorts, priority classes. Jobs and Workloads are submitted."""

    quotas: list[QuotaChange] = Field(default=[], max_length=MANIFESTS_MAX)
    """Quotas to change in ClusterQueues as they are now."""

    remove: list[str] = Field(default=[], max_length=MANIFESTS_MAX)
    """`<kind>/<name>` or `<kind>/<namespace>/<name>`."""

    lost_spoke: str | None = None
    """A spoke that fails: its workloads have to start again on another one."""


class QueueFigures(Document):
    """What the workloads of one LocalQueue go through. Times in seconds."""

    workloads: int
    admitted: int
    preemptions: int
    wait_p50_seconds: float | None = None
    wait_p95_seconds: float | None = None
    never: int


class CourseFigures(Document):
    """The figures of one simulation."""

    makespan_seconds: float | None = None
    """From now to the end of the last workload. None if the user may not see all namespaces."""

    preemptions: int | None = None
    """Preemptions of all queues. None if the user may not see all namespaces."""

    queues: dict[str, QueueFigures]
    """By `<cluster>/<namespace>/<LocalQueue>`."""


class SimulateAnswer(Document):
    """The figures before and after the change."""

    changes: list[str]
    before: CourseFigures
    after: CourseFigures
    submitted: list[str]
    """One sentence for each workload of the change: when it starts, or why it does not."""

    problems: list[str] = []
    """One sentence for each queue that would admit nothing and each workload that could never start."""


class Snapshot(Document):
    """Everything that a page shows when it opens."""

    version: int
    queues: list[QueueRow]
    workloads: list[WorkloadRow]
    omitted: int = 0
    more: bool = False
    """Whether events called `rows` with further workloads follow."""
