"""What is answered, as documents: their fields are the API's, and the OpenAPI document is made from them."""

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from shared.contracts.messages.explain import Explanation

__all__ = [
    "LIMIT_DEFAULT",
    "LIMIT_MAX",
    "VISIBILITY",
    "VISIBILITY_VERSIONS",
    "Explained",
    "FlavorRow",
    "ItemMeta",
    "Owner",
    "PendingWorkload",
    "PendingWorkloadsSummary",
    "QueueList",
    "QueueRow",
    "ResourceRow",
    "SimulateAnswer",
    "SimulateRequest",
    "Snapshot",
    "WorkloadList",
    "WorkloadRow",
]

VISIBILITY: Final = "visibility.kueue.x-k8s.io"
VISIBILITY_VERSIONS: Final = ("v1beta2", "v1beta1")
LIMIT_DEFAULT: Final = 1000
LIMIT_MAX: Final = 100_000
MANIFESTS_MAX: Final = 1000

WorkloadStatus = Literal["PENDING", "QUOTARESERVED", "ADMITTED", "EVICTED", "FINISHED"]


class Document(BaseModel):
    """Immutable, in camel case on the wire."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    def wire(self) -> dict[str, Any]:
        """As JSON has it, without what is not said."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


# Kueue's visibility API --------------------------------------------------------------------------


class Owner(Document):
    """`metav1.OwnerReference`."""

    api_version: str
    kind: str
    name: str
    uid: str


class ItemMeta(Document):
    """As much of `metav1.ObjectMeta` as Kueue tells."""

    name: str
    namespace: str
    creation_timestamp: datetime
    owner_references: list[Owner] = []


class PendingWorkload(Document):
    """One who waits."""

    metadata: ItemMeta
    priority: int
    local_queue_name: str
    position_in_cluster_queue: int
    """From 0, as Kueue counts."""

    position_in_local_queue: int


class PendingWorkloadsSummary(Document):
    """Who waits in one queue, in the order of admission."""

    kind: Literal["PendingWorkloadsSummary"] = "PendingWorkloadsSummary"
    api_version: str = f"{VISIBILITY}/{VISIBILITY_VERSIONS[0]}"
    metadata: dict[str, str] = {}
    items: list[PendingWorkload] = []


# Ours --------------------------------------------------------------------------------------------


class ResourceRow(Document):
    """One resource of one flavor. Canonical quantities."""

    name: str
    nominal: str | None = None
    """None: a LocalQueue has no quota of its own."""

    reserved: str = "0"
    borrowed: str = "0"
    share: float | None = None
    """Reserved of nominal; 1 where something is reserved of nothing."""


class FlavorRow(Document):
    """The resources of one flavor."""

    name: str
    resources: list[ResourceRow]


class QueueRow(Document):
    """A ClusterQueue or a LocalQueue as it stands."""

    kind: Literal["ClusterQueue", "LocalQueue"]
    cluster: str
    namespace: str | None = None
    name: str
    cohort: str | None = None
    cluster_queue: str | None = None
    """To which a LocalQueue points."""

    active: bool | None = None
    """None: the deciding service has said nothing yet."""

    reason: str = ""
    message: str = ""
    pending: int | None = None
    reserving: int | None = None
    admitted: int | None = None
    flavors: list[FlavorRow] = []


class Job(Document):
    """What is behind a workload."""

    kind: str
    name: str


class WorkloadRow(Document):
    """A workload: what it asks, and how it stands."""

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
    """Resource to quantity, of all pods together."""

    spoke: str | None = None
    created_at: datetime
    admitted_at: datetime | None = None
    finished_at: datetime | None = None
    succeeded: bool | None = None


class QueueList(Document):
    """Queues that the asker may see."""

    version: int
    """Of the view; grows with each change."""

    items: list[QueueRow]


class WorkloadList(Document):
    """Workloads that the asker may see: who waits first, the youngest first among equals."""

    version: int
    items: list[WorkloadRow]
    omitted: int = 0
    """How many more there are."""


class Explained(Document):
    """Why workloads of one name wait: one for each cluster that knows it."""

    items: list[Explanation]


class SimulateRequest(Document):
    """What is to be different."""

    cluster: str = "hub"
    manifests: list[dict[str, Any]] = Field(default=[], max_length=MANIFESTS_MAX)
    """To apply: queues, flavors, cohorts, priority classes; jobs and Workloads are submitted."""

    remove: list[str] = Field(default=[], max_length=MANIFESTS_MAX)
    """`<kind>/<name>` or `<kind>/<namespace>/<name>`."""

    lost_spoke: str | None = None
    """What runs on this spoke has to start again."""


class QueueFigures(Document):
    """What the workloads of one LocalQueue see. Seconds."""

    workloads: int
    admitted: int
    preemptions: int
    wait_p50_seconds: float | None = None
    wait_p95_seconds: float | None = None
    never: int


class CourseFigures(Document):
    """One course of things, summed up."""

    makespan_seconds: float | None = None
    """From now to the last end; None: not all of it may be seen."""

    preemptions: int | None = None
    queues: dict[str, QueueFigures]
    """By `<cluster>/<namespace>/<LocalQueue>`."""


class SimulateAnswer(Document):
    """Before and after."""

    changes: list[str]
    before: CourseFigures
    after: CourseFigures
    submitted: list[str]
    """What becomes of what was submitted, in sentences."""


class Snapshot(Document):
    """Everything that a page shows at first."""

    version: int
    queues: list[QueueRow]
    workloads: list[WorkloadRow]
    omitted: int = 0
