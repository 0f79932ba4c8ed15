"""What `sluice get` knows of: names, what is read, and what stands in which column.

The columns are those of kueuectl's `list` commands (kubernetes-sigs/kueue `cmd/kueuectl/app/list`) and
the printer columns of Kueue's CRDs, under kubectl's short names.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from services.ctl.get.snapshot import Json, ObjectKey, Snapshot, metadata_of
from services.ctl.get.usage import quota_of, used_of_quota
from services.ctl.get.workloads import WORKLOAD_COLUMNS, workload_cells, workload_object
from shared.contracts.kube import kinds
from shared.contracts.kube.ages import age
from shared.contracts.kube.bodies import labels_of, spec_of
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.queue_specs import flavor_names
from shared.contracts.subjects import Stream, observed_filter, subject_pattern, synced_filter


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of output."""

    ident: ObjectKey
    cells: tuple[str, ...]
    """One for each column of the resource, wide ones included."""

    object: Json
    """For `-o json` and `-o yaml`."""

    labels: Json = field(default_factory=dict)
    alias: str = ""
    """Another name that selects the row: the job's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its title, and when it is shown."""

    title: str
    wide: bool = False
    volatile: bool = False
    """It changes with time alone, which a watch does not print."""


Rows = Callable[[Snapshot, datetime], list[Row]]
Inputs = Callable[[str | None, str | None], list[tuple[str, str]]]
"""From cluster and namespace (None means all) to (log, filter)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource of `sluice get`."""

    name: str
    singular: str
    """Its name in `-o name` and in sentences."""

    short: tuple[str, ...]
    namespaced: bool
    columns: tuple[Column, ...]
    inputs: Inputs
    rows: Rows


def _columns(*titles: str) -> tuple[Column, ...]:
    """Titles in order; a leading ``+`` is for `-o wide`."""
    return tuple(
        Column(
            title=title.removeprefix("+"),
            wide=title.startswith("+"),
            volatile=title.removeprefix("+") in {"AGE", "EXEC TIME", "POSITION", "SYNCED"},
        )
        for title in titles
    )


def _from_views(*logs: str, kinds_: tuple[Kind, ...] = ()) -> Inputs:
    """Read these logs, and these observed kinds, for one cluster and namespace."""

    def inputs(cluster: str | None, namespace: str | None) -> list[tuple[str, str]]:
        of_logs = [(log, _FILTERS[log](cluster, namespace)) for log in logs]
        of_kinds = [
            (Stream.OBSERVED, observed_filter(kind, cluster=cluster, namespace=namespace))
            for kind in kinds_
        ]
        return [*of_logs, *of_kinds]

    return inputs


_FILTERS: Final[dict[str, Callable[[str | None, str | None], str]]] = {
    Stream.WORKLOADS: lambda cluster, namespace: subject_pattern("workload", cluster, namespace),
    Stream.ADMISSIONS: lambda cluster, namespace: subject_pattern("admission", cluster, namespace),
    Stream.QUEUES: lambda cluster, namespace: subject_pattern("queue", cluster, namespace),
    Stream.HOSTS: lambda cluster, _: subject_pattern("*", cluster),
    Stream.SPOKES: lambda cluster, _: subject_pattern("spoke", cluster),
    Stream.OBSERVED: lambda _cluster, _namespace: synced_filter(),
}


def _objects(
    kind: Kind,
    cells: Callable[[Snapshot, ObjectKey, Json, datetime], tuple[str, ...]],
    *,
    add: bool = False,
) -> Rows:
    """One row for each observed object; with `add`, the object also shows what quota publishes about it."""

    def rows(snapshot: Snapshot, now: datetime) -> list[Row]:
        found = snapshot.of(kind)
        unread = dict.fromkeys(snapshot.too_large.get(kind.detail, {}), _EMPTY)
        result = []
        for ident, obj in {**unread, **found}.items():
            answered = (
                {"sluice": {"queue": snapshot.queues[ident]}} if _told(snapshot, ident, add) else {}
            )
            result.append(
                Row(
                    ident=ident,
                    cells=cells(snapshot, ident, obj, now),
                    object={**obj, **answered},
                    labels=labels_of(obj),
                )
            )
        return result

    return rows


_EMPTY: Final[Json] = {}


def _told(snapshot: Snapshot, ident: ObjectKey, add: bool) -> bool:
    return add and ident in snapshot.queues


def _workloads(snapshot: Snapshot, now: datetime) -> list[Row]:
    return [
        Row(
            ident=ident,
            cells=workload_cells(snapshot, ident, now),
            object=workload_object(snapshot, ident),
            labels=state.get("labels")
            or metadata_of(snapshot.of(kinds.WORKLOAD).get(ident)).get("labels")
            or {},
            alias=str((state.get("owner") or {}).get("name", "")),
        )
        for ident, state in snapshot.workloads.items()
    ]


def _cluster_queue(
    snapshot: Snapshot, ident: ObjectKey, obj: Json, now: datetime
) -> tuple[str, ...]:
    spec, queue = spec_of(obj), snapshot.queues.get(ident, {})
    return (
        ident.name,
        str(spec.get("cohortName") or spec.get("cohort") or ""),
        _count(queue, "pending"),
        _count(queue, "admitted"),
        _state(spec, queue),
        used_of_quota(queue, quota_of(spec)),
        age(metadata_of(obj).get("creationTimestamp"), now),
        str(spec.get("queueingStrategy") or "BestEffortFIFO"),
        _count(queue, "reserving"),
        str(spec.get("stopPolicy") or "None"),
        str(queue.get("reason", "")),
    )


def _local_queue(snapshot: Snapshot, ident: ObjectKey, obj: Json, now: datetime) -> tuple[str, ...]:
    spec, queue = spec_of(obj), snapshot.queues.get(ident, {})
    return (
        ident.name,
        str(spec.get("clusterQueue") or ""),
        _count(queue, "pending"),
        _count(queue, "admitted"),
        _state(spec, queue),
        used_of_quota(queue, {}),
        age(metadata_of(obj).get("creationTimestamp"), now),
        _count(queue, "reserving"),
        str(spec.get("stopPolicy") or "None"),
        str(queue.get("reason", "")),
    )


def _state(spec: Json, queue: Json) -> str:
    """In one word whether the queue admits."""
    if (spec.get("stopPolicy") or "None") != "None":
        return str(spec["stopPolicy"])
    active = queue.get("active")
    return "" if active is None else ("Active" if active else "Inactive")


def _cohorts(snapshot: Snapshot, now: datetime) -> list[Row]:
    """Cohorts with an object, and those that only exist because a queue or cohort names them."""
    members: dict[ObjectKey, list[str]] = {}
    for (cluster, _, name), obj in snapshot.of(kinds.CLUSTER_QUEUE).items():
        spec = spec_of(obj)
        if cohort := spec.get("cohortName") or spec.get("cohort"):
            members.setdefault(ObjectKey(cluster, "", str(cohort)), []).append(name)
    known = snapshot.of(kinds.COHORT)
    for (cluster, _, _), obj in known.items():
        spec = spec_of(obj)
        if parent := spec.get("parentName") or spec.get("parent"):
            members.setdefault(ObjectKey(cluster, "", str(parent)), [])
    return [
        Row(
            ident=ident,
            cells=(
                ident.name,
                str(spec_of(obj).get("parentName") or spec_of(obj).get("parent") or ""),
                str(len(members.get(ident, ()))),
                age(metadata_of(obj).get("creationTimestamp"), now) if obj else "",
                ",".join(sorted(members.get(ident, ()))),
            ),
            object=obj or {"metadata": {"name": ident.name}},
            labels=labels_of(obj),
        )
        for ident, obj in {**dict.fromkeys(members, _EMPTY), **known}.items()
    ]


def _flavor(snapshot: Snapshot, ident: ObjectKey, obj: Json, now: datetime) -> tuple[str, ...]:
    spec = spec_of(obj)
    users = sorted(
        name
        for (cluster, _, name), queue in snapshot.of(kinds.CLUSTER_QUEUE).items()
        if cluster == ident.cluster
        for flavor in flavor_names(spec_of(queue))
        if flavor == ident.name
    )
    taints = [
        f"{taint.get('key')}={taint.get('value') or ''}:{taint.get('effect')}"
        for taint in spec.get("nodeTaints") or []
    ]
    labels = spec.get("nodeLabels") or {}
    return (
        ident.name,
        ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        age(metadata_of(obj).get("creationTimestamp"), now),
        ",".join(taints),
        ",".join(dict.fromkeys(users)),
    )


def _hosts(snapshot: Snapshot, now: datetime) -> list[Row]:
    """Machines that were ordered, and static hosts in use."""
    rows = []
    for (cluster, _, platform), state in snapshot.platforms.items():
        slots_by_host: dict[str, list[Json]] = {}
        for slot in state.get("seats") or []:
            slots_by_host.setdefault(str(slot["host"]), []).append(slot)
        rows += [
            _host(cluster, platform, machine, slots_by_host.pop(machine["name"], []), now)
            for machine in state.get("machines") or []
        ]
        for name, slots in slots_by_host.items():
            static = {
                "name": name,
                "provider": "static",
                "state": "running",
                "address": slots[0].get("address", ""),
            }
            rows.append(_host(cluster, platform, static, slots, now))
    return rows


def _host(cluster: str, platform: str, machine: Json, slots: list[Json], now: datetime) -> Row:
    runs = sorted(f"{slot['namespace']}/{slot['name']}" for slot in slots)
    launched = machine.get("launched_at")
    return Row(
        ident=ObjectKey(cluster, "", str(machine["name"])),
        cells=(
            str(machine["name"]),
            platform,
            str(machine.get("provider", "")),
            str(machine.get("state", "")),
            str(len(runs)),
            age(launched, now) if launched else "",
            str(machine.get("address", "")),
            ",".join(runs),
        ),
        object={
            "kind": "Host",
            "cluster": cluster,
            "platform": platform,
            **machine,
            "seats": slots,
        },
    )


def _spokes(snapshot: Snapshot, now: datetime) -> list[Row]:
    """MultiKueueClusters with what the dispatcher publishes about each."""
    return [
        Row(
            ident=ident,
            cells=_spoke(snapshot, ident, obj, now),
            object={**obj, "sluice": {"spoke": snapshot.spokes.get(ident, _EMPTY)}},
            labels=labels_of(obj),
        )
        for ident, obj in snapshot.of(kinds.MULTIKUEUE_CLUSTER).items()
    ]


def _spoke(snapshot: Snapshot, ident: ObjectKey, obj: Json, now: datetime) -> tuple[str, ...]:
    state, synced = snapshot.spokes.get(ident, _EMPTY), snapshot.synced.get(ident.name)
    counts, latency = state.get("counts") or _EMPTY, state.get("latency_seconds")
    free = state.get("free") or _EMPTY
    return (
        ident.name,
        _yes(state.get("active")),
        *(_count(counts, what) for what in ("offered", "chosen", "withdrawing")),
        "" if latency is None else f"{latency:g}s",
        age(metadata_of(obj).get("creationTimestamp"), now),
        _count(state, "failures"),
        ",".join(f"{name}={amount}" for name, amount in sorted(free.items())),
        age(synced.get("at"), now) if synced else "",
        f"{state['reason']}: {state['message']}" if state else "",
    )


def _count(queue: Json, what: str) -> str:
    return str(queue[what]) if what in queue else ""


def _yes(value: object) -> str:
    return "" if value is None else str(bool(value))


RESOURCES: Final = (
    Resource(
        name="workloads",
        singular="workload",
        short=("workload", "wl", "kwl", "kueueworkload", "kueueworkloads"),
        namespaced=True,
        columns=_columns(*WORKLOAD_COLUMNS),
        inputs=_from_views(
            Stream.WORKLOADS,
            Stream.ADMISSIONS,
            kinds_=(kinds.WORKLOAD, kinds.LOCAL_QUEUE, kinds.CLUSTER_QUEUE),
        ),
        rows=_workloads,
    ),
    Resource(
        name="clusterqueues",
        singular="clusterqueue",
        short=("clusterqueue", "cq"),
        namespaced=False,
        columns=_columns(
            *("NAME", "COHORT", "PENDING", "ADMITTED", "STATE", "USED/QUOTA", "AGE"),
            *("+STRATEGY", "+RESERVING", "+STOP POLICY", "+REASON"),
        ),
        inputs=_from_views(Stream.QUEUES, kinds_=(kinds.CLUSTER_QUEUE,)),
        rows=_objects(kinds.CLUSTER_QUEUE, _cluster_queue, add=True),
    ),
    Resource(
        name="localqueues",
        singular="localqueue",
        short=("localqueue", "lq", "queue", "queues"),
        namespaced=True,
        columns=_columns(
            *("NAME", "CLUSTERQUEUE", "PENDING", "ADMITTED", "STATE", "USED", "AGE"),
            *("+RESERVING", "+STOP POLICY", "+REASON"),
        ),
        inputs=_from_views(Stream.QUEUES, kinds_=(kinds.LOCAL_QUEUE,)),
        rows=_objects(kinds.LOCAL_QUEUE, _local_queue, add=True),
    ),
    Resource(
        name="cohorts",
        singular="cohort",
        short=("cohort", "co"),
        namespaced=False,
        columns=_columns("NAME", "PARENT", "CLUSTERQUEUES", "AGE", "+MEMBERS"),
        inputs=_from_views(kinds_=(kinds.COHORT, kinds.CLUSTER_QUEUE)),
        rows=_cohorts,
    ),
    Resource(
        name="flavors",
        singular="resourceflavor",
        short=("flavor", "rf", "resourceflavor", "resourceflavors"),
        namespaced=False,
        columns=_columns("NAME", "NODE LABELS", "AGE", "+TAINTS", "+USED BY"),
        inputs=_from_views(kinds_=(kinds.RESOURCE_FLAVOR, kinds.CLUSTER_QUEUE)),
        rows=_objects(kinds.RESOURCE_FLAVOR, _flavor),
    ),
    Resource(
        name="hosts",
        singular="host",
        short=("host",),
        namespaced=False,
        columns=_columns(
            *("NAME", "PLATFORM", "PROVIDER", "STATE", "TASKRUNS", "AGE"),
            *("+ADDRESS", "+TASKRUN NAMES"),
        ),
        inputs=_from_views(Stream.HOSTS),
        rows=_hosts,
    ),
    Resource(
        name="spokes",
        singular="multikueuecluster",
        short=("spoke", "mkc", "multikueuecluster", "multikueueclusters"),
        namespaced=False,
        columns=_columns(
            *("NAME", "CONNECTED", "OFFERED", "CHOSEN", "WITHDRAWING", "LATENCY", "AGE"),
            *("+FAILURES", "+FREE", "+SYNCED", "+WHY"),
        ),
        inputs=_from_views(Stream.SPOKES, Stream.OBSERVED, kinds_=(kinds.MULTIKUEUE_CLUSTER,)),
        rows=_spokes,
    ),
)
"""In the order of the help text."""


def resource_named(word: str) -> Resource | None:
    """The resource for a name, singular or short name, in any case as in kubectl; None if there is none."""
    word = word.lower()
    return next((r for r in RESOURCES if word == r.name or word in r.short), None)
