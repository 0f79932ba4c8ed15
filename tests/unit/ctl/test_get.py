"""Columns, ages, selectors and words of `sluice get`, from messages as they are in the views."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.ctl.get.command import Query, show
from services.ctl.get.snapshot import Snapshot
from shared.bus.stream_reader import Seen
from shared.contracts.kube.ages import UNKNOWN, age, duration

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
Json = dict[str, Any]


def seen(subject: str, **body: Any) -> Seen:
    body = {"cluster": "hub", **body}
    return Seen(subject=subject, body=body, headers={}, sequence=1, time=NOW)


def ago(**how: int) -> str:
    return (NOW - timedelta(**how)).isoformat()


def observed(kind: str, plural: str, name: str, spec: Json, *, ns: str = "", **more: Any) -> Seen:
    metadata = {"name": name, "namespace": ns, "creationTimestamp": ago(hours=3)}
    metadata |= more.pop("metadata", {})
    return seen(
        f"sluice.observed.{more.get('cluster', 'hub')}.{ns or '_'}.{name}.{plural}_kueue_x-k8s_io",
        group="kueue.x-k8s.io", version="v1beta2", kind=kind, plural=plural,
        namespace=ns or None, name=name,
        object={"metadata": metadata, "spec": spec, **more.pop("also", {})}, **more,
    )  # fmt: skip


def workload(name: str, *, namespace: str = "team", **more: Any) -> Seen:
    owner = {"api_version": "batch/v1", "kind": "Job", "name": name.removeprefix("job-")}
    return seen(
        f"sluice.workload.hub.{namespace}.{name}",
        **{
            "namespace": namespace, "name": name, "uid": f"u-{name}", "phase": "waiting",
            "queue": "main", "priority": 7, "owner": owner, "created_at": ago(minutes=5), **more,
        },
    )  # fmt: skip


def admission(name: str, state: str, **more: Any) -> Seen:
    return seen(
        f"sluice.admission.hub.team.{name}", namespace="team", name=name, state=state,
        **{"uid": f"u-{name}", "decided_at": ago(seconds=90), "cluster_queue": "cq", **more},
    )  # fmt: skip


def queue_status(kind: str, name: str, *, ns: str | None = None, **more: Any) -> Seen:
    counts = {"pending": 3, "reserving": 2, "admitted": 1, "active": True, "reason": "Ready"}
    return seen(
        f"sluice.queue.hub.{ns or '_'}.{name}", kind=kind, name=name, namespace=ns, **counts | more
    )


def table(word: str, *messages: Seen, **options: Any) -> list[list[str]]:
    """The cells of each line; two blanks part them."""
    snapshot = Snapshot()
    for message in messages:
        snapshot.apply(message)
    query = Query.of(word, **{"output": "table", "namespace": "team", **options})
    lines = show(query, query.rows(snapshot, NOW))
    return [[cell for cell in line.split("  ") if cell] for line in lines]


def cells(*texts: str) -> list[str]:
    return list(texts)


LOCAL_QUEUE = observed("LocalQueue", "localqueues", "main", {"clusterQueue": "cq"}, ns="team")


def stopped(kind: str, plural: str, name: str, **spec: Any) -> Seen:
    ns = "team" if kind == "LocalQueue" else ""
    return observed(kind, plural, name, {"stopPolicy": "Hold", **spec}, ns=ns)


def strip(lines: list[list[str]]) -> list[list[str]]:
    return [[cell.strip() for cell in line] for line in lines]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (119, "119s"), (120, "2m"), (121, "2m1s"), (599, "9m59s"), (600, "10m"),
        (3 * 3600 - 1, "179m"), (3 * 3600, "3h"), (3 * 3600 + 60, "3h1m"), (8 * 3600, "8h"),
        (48 * 3600 - 1, "47h"), (48 * 3600, "2d"), (49 * 3600, "2d1h"), (8 * 86400, "8d"),
        (2 * 365 * 86400, "2y"), (3 * 365 * 86400 + 5 * 86400, "3y5d"), (9 * 365 * 86400, "9y"),
        (-1, "0s"), (-5, "<invalid>"),
    ],
)  # fmt: skip
def test_durations_are_formatted_as_in_kubectl(seconds: int, text: str) -> None:
    assert duration(seconds) == text


def test_object_without_timestamp_has_no_age() -> None:
    assert [age(none, NOW) for none in (None, "", "yesterday", "2026-01-01T00:00:00")] == (
        [UNKNOWN] * 4
    )
    assert age("2026-01-01T11:59:00Z", NOW) == "60s"


WORKLOADS: list[Any] = [
    pytest.param(
        [workload("job-a")],
        cells("job-a", "main", "PENDING", "<none>", "<none>", "5m"),
        id="one that waits",
    ),
    pytest.param(
        [workload("job-a"), admission("job-a", "waiting", reason="WaitingForQuota")],
        cells("job-a", "main", "PENDING", "<none>", "WaitingForQuota", "5m"),
        id="one that waits with its reason",
    ),
    pytest.param(
        [workload("job-a"), stopped("ClusterQueue", "clusterqueues", "cq")],
        cells("job-a", "main", "PENDING", "<none>", "ClusterQueueStopped", "5m"),
        id="one that waits in a ClusterQueue on hold",
    ),
    pytest.param(
        [
            workload("job-a"), admission("job-a", "waiting", reason="Suspended"),
            stopped("LocalQueue", "localqueues", "main", clusterQueue="cq"),
        ],
        cells("job-a", "main", "PENDING", "<none>", "LocalQueueStopped", "5m"),
        id="one that waits in a LocalQueue on hold",
    ),
    pytest.param(
        [workload("job-a", phase="running"), admission("job-a", "admitted")],
        cells("job-a", "main", "ADMITTED", "<none>", "<none>", "5m"),
        id="one that runs has run since it was admitted",
    ),
    pytest.param(
        [workload("job-a"), admission("job-a", "reserved", cluster_queue="other")],
        cells("job-a", "main", "QUOTARESERVED", "<none>", "<none>", "5m"),
        id="one that waits for checks has quota where quota says",
    ),
    pytest.param(
        [workload("job-a"), admission("job-a", "admitted", uid="an earlier life")],
        cells("job-a", "main", "PENDING", "<none>", "<none>", "5m"),
        id="a decision about an earlier life is not about this one",
    ),
    pytest.param(
        [workload("job-a"), admission("job-a", "evicted")],
        cells("job-a", "main", "EVICTED", "<none>", "<none>", "5m"),
        id="one that was evicted holds its quota until its pods are gone",
    ),
    pytest.param(
        [
            workload("job-a", phase="finished", finish={"success": True, "at": ago(seconds=10)}),
            admission("job-a", "released"),
            observed(
                "Workload", "workloads", "job-a", {}, ns="team",
                also={"status": {"conditions": [
                    {"type": "Admitted", "status": "True", "lastTransitionTime": ago(seconds=70)}
                ]}},
            ),
        ],
        cells("job-a", "main", "FINISHED", "<none>", "Succeeded", "5m"),
        id="one that is over ran from its admission to its end",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "row"), WORKLOADS)
def test_workloads_say_how_they_stand_and_why(messages: list[Seen], row: list[str]) -> None:
    header, *rows = strip(table("wl", LOCAL_QUEUE, *messages))
    assert header == ["NAME", "LOCALQUEUE", "STATUS", "POSITION", "REASON", "AGE"]
    assert rows == [row]


def test_longest_names_of_the_example_fit_into_a_hundred_columns() -> None:
    name = "pipelinerun-dependency-update-0527-7dafc"
    waits = admission(name, "waiting", reason="WaitingForQuota")
    lines = [
        "  ".join(line) for line in table("wl", workload(name, queue="pipelines-queue"), waits)
    ]
    assert max(map(len, lines)) <= 100, lines


ADMITTED_OBJECT = observed(
    "Workload", "workloads", "job-a", {}, ns="team",
    also={"status": {
        "admission": {"clusterQueue": "cq"},
        "conditions": [
            {"type": "Admitted", "status": "True", "lastTransitionTime": ago(seconds=70)}
        ],
    }},
)  # fmt: skip
FINISHED = workload("job-a", phase="finished", finish={"success": True, "at": ago(seconds=10)})

STANDINGS: list[Any] = [
    pytest.param([workload("job-a")], ["<none>", "<none>", "False", "False"], id="waiting"),
    pytest.param(
        [workload("job-a"), admission("job-a", "reserved", reason="Reserved")],
        ["Reserved", "cq", "False", "False"],
        id="waiting for checks",
    ),
    pytest.param(
        [workload("job-a", phase="running"), admission("job-a", "admitted")],
        ["<none>", "cq", "True", "False"],
        id="running",
    ),
    pytest.param(
        [FINISHED, admission("job-a", "released"), ADMITTED_OBJECT],
        ["Succeeded", "cq", "True", "True"],
        id="finished: what it had stays on record",
    ),
    pytest.param(
        [FINISHED, admission("job-a", "released")],
        ["Succeeded", "<none>", "False", "True"],
        id="finished, and no object says what it had",
    ),
]


@pytest.mark.parametrize(("messages", "row"), STANDINGS)
def test_wide_workloads_have_the_columns_of_kueues_own_kind(
    messages: list[Seen], row: list[str]
) -> None:
    header, line = strip(table("wl", LOCAL_QUEUE, *messages, output="wide"))
    assert header[:7] == [
        *("NAME", "JOB TYPE", "JOB NAME", "LOCALQUEUE", "CLUSTERQUEUE", "STATUS", "POSITION"),
    ]
    assert header[8:11] == ["EXEC TIME", "AGE", "PRIORITY"]
    assert header[11:] == ["RESERVED IN", "ADMITTED", "FINISHED"]
    assert [line[7], *line[10:]] == [row[0], "7", *row[1:]]


def test_deleted_objects_are_not_shown() -> None:
    assert len(table("wl", workload("job-a"), workload("job-a", phase="gone"))) == 1
    queue = observed("ClusterQueue", "clusterqueues", "cq", {})
    gone = observed("ClusterQueue", "clusterqueues", "cq", {}, deleted=True)
    assert len(table("cq", queue, gone)) == 1


CLUSTER_QUEUE = observed(
    "ClusterQueue", "clusterqueues", "cq",
    {
        "cohortName": "all", "queueingStrategy": "StrictFIFO", "stopPolicy": "Hold",
        "resourceGroups": [{"flavors": [
            {"name": "spot", "resources": [
                {"name": "cpu", "nominalQuota": 8}, {"name": "memory", "nominalQuota": "8Gi"},
                {"name": "pods", "nominalQuota": 100},
            ]},
            {"name": "fast", "resources": [{"name": "cpu", "nominalQuota": "2"}]},
        ]}],
    },
)  # fmt: skip

OTHERS: list[Any] = [
    pytest.param(
        "cq", "table",
        [CLUSTER_QUEUE, queue_status("ClusterQueue", "cq", active=False, reservation=[
            {"name": "spot", "resources": [
                {"name": "cpu", "total": "2500m"}, {"name": "memory", "total": "1Gi"},
            ]},
            {"name": "fast", "resources": [{"name": "cpu", "total": "500m"}]},
        ])],
        ["NAME", "COHORT", "PENDING", "ADMITTED", "STATE", "USED/QUOTA", "AGE"],
        [["cq", "all", "3", "1", "Hold", "cpu 3/10, memory 1Gi/8Gi, 1 more", "3h"]],
        id="ClusterQueues",
    ),
    pytest.param(
        "clusterqueue", "wide",
        [CLUSTER_QUEUE, queue_status("ClusterQueue", "cq", active=False, reason="Stopped")],
        ["NAME", "COHORT", "PENDING", "ADMITTED", "STATE", "USED/QUOTA", "AGE", "STRATEGY",
         "RESERVING", "STOP POLICY", "REASON"],
        [["cq", "all", "3", "1", "Hold", "cpu 0/10, memory 0/8Gi, 1 more", "3h", "StrictFIFO", "2",
          "Hold", "Stopped"]],
        id="ClusterQueues, wide",
    ),
    pytest.param(
        "queues", "table", [LOCAL_QUEUE, queue_status("LocalQueue", "main", ns="team")],
        ["NAME", "CLUSTERQUEUE", "PENDING", "ADMITTED", "STATE", "USED", "AGE"],
        [["main", "cq", "3", "1", "Active", "<none>", "3h"]],
        id="LocalQueues",
    ),
    pytest.param(
        "co", "table",
        [CLUSTER_QUEUE, observed("Cohort", "cohorts", "team", {"parentName": "root"})],
        ["NAME", "PARENT", "CLUSTERQUEUES", "AGE"],
        [
            ["all", "<none>", "1", "<none>"], ["root", "<none>", "0", "<none>"],
            ["team", "root", "0", "3h"],
        ],
        id="cohorts, also those that only their members name",
    ),
    pytest.param(
        "rf", "wide",
        [
            CLUSTER_QUEUE,
            observed(
                "ResourceFlavor", "resourceflavors", "spot",
                {
                    "nodeLabels": {"disk": "ssd", "cloud": "a"},
                    "nodeTaints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
                },
            ),
        ],
        ["NAME", "NODE LABELS", "AGE", "TAINTS", "USED BY"],
        [["spot", "cloud=a,disk=ssd", "3h", "k=v:NoSchedule", "cq"]],
        id="flavors, wide",
    ),
    pytest.param(
        "hosts", "table",
        [
            seen(
                "sluice.platform.hub._.linux_arm64", platform="linux/arm64",
                seats=[
                    {"host": "vm-1", "namespace": "team", "name": "build", "address": "10.0.0.1"},
                    {"host": "mac", "namespace": "team", "name": "sign", "address": "10.0.0.9"},
                ],
                machines=[
                    {"name": "vm-1", "provider": "aws", "state": "running",
                     "launched_at": ago(minutes=20)},
                ],
            )
        ],
        ["NAME", "PLATFORM", "PROVIDER", "STATE", "TASKRUNS", "AGE"],
        [
            ["mac", "linux/arm64", "static", "running", "1", "<none>"],
            ["vm-1", "linux/arm64", "aws", "running", "1", "20m"],
        ],
        id="hosts: machines and the static ones in use",
    ),
    pytest.param(
        "spokes", "wide",
        [
            observed("MultiKueueCluster", "multikueueclusters", "east", {}),
            observed("MultiKueueCluster", "multikueueclusters", "west", {}),
            seen("sluice.observed.west._._.synced", at=ago(minutes=30), cluster="west"),
            seen("sluice.spoke.hub._.west", cluster="hub", spoke="west", active=True,
                 reason="Active", message="Connected", latency_seconds=0.2, failures=1,
                 counts={"offered": 2, "chosen": 12, "withdrawing": 0},
                 free={"cpu": "7", "memory": "2Gi"}),
            seen("sluice.spoke.hub._.north", cluster="hub", spoke="north", active=False,
                 reason="ClientConnectionFailed", message="Nothing is heard of it",
                 failures=0, counts={"offered": 0, "chosen": 0, "withdrawing": 3}),
            observed("MultiKueueCluster", "multikueueclusters", "north", {}),
        ],
        ["NAME", "CONNECTED", "OFFERED", "CHOSEN", "WITHDRAWING", "LATENCY", "AGE", "FAILURES",
         "FREE", "SYNCED", "WHY"],
        [
            ["east", "<none>", "<none>", "<none>", "<none>", "<none>", "3h", "<none>", "<none>",
             "<none>", "<none>"],
            ["north", "False", "0", "0", "3", "<none>", "3h", "0", "<none>", "<none>",
             "ClientConnectionFailed: Nothing is heard of it"],
            ["west", "True", "2", "12", "0", "0.2s", "3h", "1", "cpu=7,memory=2Gi", "30m",
             "Active: Connected"],
        ],
        id="spokes: as the dispatcher says they stand",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("word", "output", "messages", "header", "rows"), OTHERS)
def test_tables_of_other_resources_have_their_columns(
    word: str, output: str, messages: list[Seen], header: list[str], rows: list[list[str]]
) -> None:
    assert strip(table(word, *messages, output=output)) == [header, *rows]


def test_several_namespaces_or_clusters_add_columns() -> None:
    there = workload("job-b", namespace="other")
    assert strip(table("wl", workload("job-a"), there))[1:][0][0] == "job-a"
    everywhere = strip(table("wl", workload("job-a"), there, namespace=None))
    assert [line[0] for line in everywhere] == ["NAMESPACE", "other", "team"]
    east = observed("ClusterQueue", "clusterqueues", "cq", {}, cluster="east")
    assert [line[0] for line in strip(table("cq", CLUSTER_QUEUE, east))] == [
        *("CLUSTER", "east", "hub"),
    ]
    assert len(table("cq", CLUSTER_QUEUE, east, cluster="hub")) == 2


def test_workload_is_found_by_its_name_and_by_its_job() -> None:
    for name in ("job-a", "a"):
        assert len(table("wl", workload("job-a"), workload("job-b"), name=name)) == 2


def test_json_shows_the_observed_object_with_its_messages() -> None:
    snapshot = Snapshot()
    for message in (CLUSTER_QUEUE, queue_status("ClusterQueue", "cq"), workload("job-a")):
        snapshot.apply(message)
    query = Query.of("cq", output="name")
    (row,) = query.rows(snapshot, NOW)
    assert row.object["apiVersion"] == "kueue.x-k8s.io/v1beta2"
    assert row.object["spec"]["cohortName"] == "all"
    assert row.object["sluice"]["queue"]["pending"] == 3
    assert show(query, [row]) == ["clusterqueue.kueue.x-k8s.io/cq"]
    query = Query.of("wl", output="yaml", namespace="team")
    text = show(query, query.rows(snapshot, NOW))[0]
    assert "kind: Workload" in text
    assert "phase: waiting" in text
