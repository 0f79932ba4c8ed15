"""The JSON documents that single pages ask for beside the rows."""

from datetime import datetime
from typing import Literal

from services.console.documents import Document


class TimelineLine(Document):
    """One thing that happened to a workload."""

    at: datetime
    what: str
    """`webhook`, `workload`, `admission`, `check`, `outcome` or `host`: whose message says it."""

    text: str


class Preemptor(Document):
    """The workload for which another one was evicted."""

    at: datetime
    namespace: str | None = None
    """None if the user may not see its namespace."""

    name: str | None = None


class Timeline(Document):
    """What the logs hold about one workload, oldest first."""

    cluster: str
    namespace: str
    name: str
    items: list[TimelineLine]
    omitted: int = 0
    """How many earlier lines are left out."""

    last_admitted_at: datetime | None = None
    """None: it was never admitted, as far as the log goes back."""

    preemptor: Preemptor | None = None
    """Who preempted it last. None: nobody, as far as the log goes back."""

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


class QuotaPlace(Document):
    """One resource in one flavor, of one ClusterQueue or cohort. Canonical quantities."""

    flavor: str
    resource: str
    nominal: str
    """Of a cohort: its own quota and that of everything below it."""

    reserved: str
    """Held by workloads, admitted or not."""

    used: str
    """Held by admitted workloads."""

    borrowed: str
    """Held beyond the nominal quota; of a cohort, the sum over its queues."""

    lent: str
    """Of the nominal quota, what it could not have now, because the rest of its cohort holds it."""


class QuotaNode(Document):
    """A ClusterQueue or a cohort, and where its quota is."""

    cluster: str
    kind: Literal["ClusterQueue", "Cohort"]
    name: str
    parent: str | None = None
    """The cohort above it."""

    places: list[QuotaPlace]


class QuotaTree(Document):
    """Where the quota of all ClusterQueues and cohorts is, parents before children."""

    items: list[QuotaNode]


class GivenResource(Document):
    """One resource of one pod set: what was asked, and what was given. Canonical quantities."""

    name: str
    per_pod: str | None = None
    """None: its pods do not ask for it; the queue counts it by itself."""

    asked: str | None = None
    """By all pods together."""

    given: str | None = None
    """To all pods together. None: no quota is given."""

    flavor: str | None = None


class GivenPodSet(Document):
    """One pod set of a workload, asked and given."""

    name: str
    asked: int
    """Pods."""

    least: int | None = None
    """Pods with which it may be admitted partially. None: all or nothing."""

    given: int | None = None
    """Pods that have quota. None: it has none."""

    resources: list[GivenResource]


class GivenFlavor(Document):
    """A flavor that the workload has quota in."""

    name: str
    node_labels: dict[str, str] | None = None
    """Of the nodes that it means. None if the user may not list the ResourceFlavors, or there is none."""


class GivenList(Document):
    """What a workload asked beside what it was given."""

    items: list[GivenPodSet]
    flavors: list[GivenFlavor] = []
