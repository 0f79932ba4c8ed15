"""The JSON documents of the API. The OpenAPI document is made from these models."""

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from shared.contracts.messages.explain import Explanation
from shared.contracts.reasons import WorkloadStatus

VISIBILITY_GROUP: Final = "visibility.kueue.x-k8s.io"
VISIBILITY_VERSIONS: Final = ("v1beta2", "v1beta1")
LIMIT_DEFAULT: Final = 1000
LIMIT_MAX: Final = 100_000
MANIFESTS_MAX: Final = 1000


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
    created_at: datetime
    admitted_at: datetime | None = None
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


class TimelineLine(Document):
    """One thing that happened to a workload."""

    at: datetime
    what: str
    """`webhook`, `workload`, `admission`, `check` or `outcome`: whose message says it."""

    text: str


class Timeline(Document):
    """What the logs hold about one workload, oldest first."""

    cluster: str
    namespace: str
    name: str
    items: list[TimelineLine]
    omitted: int = 0
    """How many earlier lines are left out."""

    trace_id: str | None = None
    trace_url: str | None = None
    """None without a trace, or if the console is not told where traces are shown."""

    job_url: str | None = None
    """None without a job, or if the console is not told where jobs are shown."""


class TrendWait(Document):
    """How long the workloads of one priority waited from their creation to their admission."""

    priority: str
    """`other`: the priorities that are rarer than those that are told apart."""

    admitted: int
    p50_seconds: float
    p95_seconds: float


class TrendPoint(Document):
    """What happened in one span of time."""

    at: datetime
    """Its beginning."""

    admitted: int
    preempted: int
    waits: list[TrendWait]


class Trend(Document):
    """The recent past, from the logs."""

    span: str
    seconds: int
    """Length of one point."""

    complete: bool
    """False while the logs are being read: the figures grow still."""

    read_until: datetime | None = None
    points: list[TrendPoint]


class Alert(Document):
    """An alert that rings."""

    name: str
    """As in `deploy/prometheus/rules.yaml`."""

    severity: str
    """`critical` or `warning`."""

    summary: str
    since: datetime | None = None
    """None: not known."""

    runbook: str
    """The page that says what to do: an address, or a path in the project's repository."""


class AlertList(Document):
    """The alerts that ring, critical ones first."""

    items: list[Alert]
    source: Literal["prometheus", "streams"]
    """`streams`: only the alerts that the streams and quota tell of; the others need a Prometheus."""

    complete: bool = True
    """False before the first look has ended."""

    problem: str = ""
    """Why not all of it could be read. Empty: it could."""


class FlavorDetail(Document):
    """A ResourceFlavor."""

    cluster: str
    name: str
    node_labels: dict[str, str] = {}
    node_taints: list[str] = []
    """As `kubectl taint` writes them: `key=value:effect`."""

    topology: str | None = None


class FlavorList(Document):
    """The ResourceFlavors."""

    items: list[FlavorDetail]


class SpokeDetail(Document):
    """A spoke cluster, as the hub knows it."""

    cluster: str
    """The hub."""

    name: str
    active: bool | None = None
    """None until the dispatcher has published something of it."""

    reason: str = ""
    message: str = ""
    offered: int = 0
    chosen: int = 0
    withdrawing: int = 0
    latency_seconds: float | None = None
    failures: int = 0
    free: dict[str, str] = {}
    at: datetime | None = None


class SpokeList(Document):
    """The spokes."""

    items: list[SpokeDetail]


class Slot(Document):
    """A place for one build on a host."""

    host: str
    state: str
    namespace: str | None = None
    """Of the TaskRun. None if the user may not see its namespace."""

    task_run: str | None = None


class MachineDetail(Document):
    """A machine that a provider runs for a platform."""

    name: str
    provider: str
    state: str
    shared: bool = False
    launched_at: datetime


class PlatformDetail(Document):
    """The slots and machines of one platform."""

    cluster: str
    platform: str
    slots: list[Slot]
    machines: list[MachineDetail]
    refused: int = 0
    """TaskRuns that get no host."""

    at: datetime


class UseRow(Document):
    """What a ClusterQueue had reserved of one resource of one flavor."""

    flavor: str
    resource: str
    reserved: str


class UsePoint(Document):
    """What a ClusterQueue had reserved at the end of one point of time."""

    at: datetime
    """Its beginning."""

    reserved: list[UseRow] | None = None
    """None: the log does not reach so far back."""


class Use(Document):
    """Quota in use over time."""

    span: str
    seconds: int
    """Length of a point."""

    complete: bool
    """False while the log is still read."""

    points: list[UsePoint]


class RowStart(Document):
    """When one waiting workload probably starts."""

    namespace: str
    name: str
    expected_start: datetime | None = None
    """None: it is not foreseen, only that it hardly comes before `expected_earliest`."""

    expected_earliest: datetime
    expected_latest: datetime | None = None


class StartList(Document):
    """When the first workloads of a ClusterQueue probably start: one forecast for all of them."""

    items: list[RowStart]
    unknown_because: str = ""
    """Why there is no forecast; empty: there is one."""


class PlatformList(Document):
    """The platforms of build machines."""

    items: list[PlatformDetail]


class Snapshot(Document):
    """Everything that a page shows when it opens."""

    version: int
    queues: list[QueueRow]
    workloads: list[WorkloadRow]
    omitted: int = 0
    more: bool = False
    """Whether events called `rows` with further workloads follow."""
