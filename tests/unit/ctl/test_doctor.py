"""What the doctor finds wrong, each from the smallest picture that shows it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from services.ctl.doctor.admission_checks import unanswered_checks
from services.ctl.doctor.bus import DEAD_SHOWN, consumer_findings, dead_letters, full_or_behind
from services.ctl.doctor.configuration import configuration
from services.ctl.doctor.findings import Finding
from services.ctl.doctor.held_quota import held_quota
from services.ctl.doctor.kueue_configuration import kueue_configuration
from services.ctl.doctor.nodes import nodes
from services.ctl.get.snapshot import Snapshot
from shared.bus.stream_reader import Seen
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
Json = dict[str, Any]


def seen(subject: str, **body: Any) -> Seen:
    return Seen(subject=subject, body={"cluster": "hub", **body}, headers={}, sequence=1, time=NOW)


def observed(kind: Kind, name: str, spec: Json | None = None, *, ns: str | None = None) -> Seen:
    return seen(
        f"sluice.observed.hub.{ns or '_'}.{name}.{kind.detail}", group=kind.group,
        version=kind.version, kind=kind.kind, namespace=ns, name=name,
        object={"metadata": {"name": name}, "spec": spec or {}},
    )  # fmt: skip


def workload(name: str = "job-a", **more: Any) -> Seen:
    state = {"namespace": "team", "name": name, "uid": "u", "phase": "waiting", "queue": "main"}
    return seen(f"sluice.workload.hub.team.{name}", **state | more)


def admission(state: str, *, seconds: float = 3600, **more: Any) -> Seen:
    decided = (NOW - timedelta(seconds=seconds)).isoformat()
    pod_sets = [{"usage": {"cpu": "2"}}]
    body: Json = {"namespace": "team", "name": "job-a", "uid": "u", "cluster_queue": "cq"}
    body |= {"state": state, "decided_at": decided, "pod_sets": pod_sets}
    return seen("sluice.admission.hub.team.job-a", **body | more)


def status(*, active: bool, reason: str = "Ready", message: str = "") -> Seen:
    body = {"kind": "ClusterQueue", "name": "cq", "namespace": None, "pending": 0}
    return seen("sluice.queue.hub._.cq", **body, active=active, reason=reason, message=message)


GROUPS = [{"flavors": [{"name": "default", "resources": []}]}]
GOOD = [
    observed(kinds.RESOURCE_FLAVOR, "default"),
    observed(kinds.CLUSTER_QUEUE, "cq", {"resourceGroups": GROUPS}),
    observed(kinds.LOCAL_QUEUE, "main", {"clusterQueue": "cq"}, ns="team"),
    status(active=True),
]


def snapshot(*messages: Seen) -> Snapshot:
    result = Snapshot()
    for message in [*GOOD, *messages]:
        result.apply(message)
    return result


def told(findings: list[Finding]) -> list[str]:
    return [f"{finding.where}: {finding.problem}" for finding in findings]


CONFIGURATIONS: list[Any] = [
    pytest.param([], [], id="nothing where all is well"),
    pytest.param(
        [status(active=False, reason="FlavorNotFound", message="references missing spot")],
        ["ClusterQueue cq: is inactive: FlavorNotFound: references missing spot"],
        id="a ClusterQueue that is not active, with its reason",
    ),
    pytest.param(
        [
            observed(kinds.CLUSTER_QUEUE, "cq", {"stopPolicy": "Hold", "resourceGroups": GROUPS}),
            status(active=False, reason="Stopped"),
        ],
        ["ClusterQueue cq: is stopped (stopPolicy Hold)"],
        id="a ClusterQueue that somebody stopped",
    ),
    pytest.param(
        [
            observed(
                kinds.CLUSTER_QUEUE, "cq",
                {
                    "resourceGroups": [{"flavors": [{"name": "spot"}, {"name": "default"}]}],
                    "admissionChecks": ["machines"],
                    "admissionChecksStrategy": {"admissionChecks": [{"name": "window"}]},
                },
            )
        ],
        [
            "ClusterQueue cq: names ResourceFlavor spot, which is not there",
            "ClusterQueue cq: names AdmissionCheck machines, window, which is not there",
        ],
        id="flavors and checks that are named and missing",
    ),
    pytest.param(
        [observed(kinds.LOCAL_QUEUE, "main", {"clusterQueue": "other"}, ns="team")],
        ["LocalQueue team/main: points to ClusterQueue other, which is not there"],
        id="a LocalQueue that points nowhere",
    ),
    pytest.param(
        [workload(queue="none"), workload("job-b", queue="none")],
        ["LocalQueue team/none: is not there, but is named by the queue label of job-a, job-b"],
        id="workloads in a LocalQueue that is not there",
    ),
    pytest.param(
        [workload(), admission("waiting", reason="ExceedsMaxQuota", message="500 cpu > 4")],
        ["workload team/job-a: can never be admitted: 500 cpu > 4"],
        id="a workload that asks for more than there is",
    ),
    pytest.param(
        [
            workload(
                priority_class="high",
                priority_class_source="kueue.x-k8s.io/workloadpriorityclass",
            ),
            observed(kinds.PRIORITY_CLASS, "high"),
        ],
        ["WorkloadPriorityClass high: is not there, but team/job-a name it"],
        id="a priority class that is missing, though one of the other kind is there",
    ),
    pytest.param(
        [workload(f"job-{number}", inadmissible="asks 0 pods") for number in range(5)],
        ["team/job-0, team/job-1, team/job-2 and 2 more: can never be admitted: asks 0 pods"],
        id="workloads that can never be admitted, once for each reason",
    ),
    pytest.param(
        [observed(kinds.MULTIKUEUE_CLUSTER, "west")],
        ["spoke west: no watcher has listed it: nothing is dispatched there"],
        id="a spoke that nobody watches",
    ),
    pytest.param(
        [
            observed(kinds.MULTIKUEUE_CLUSTER, "west"),
            seen("sluice.observed.west._._.synced", cluster="west"),
            seen("sluice.spoke.hub._.west", cluster="hub", spoke="west", active=False,
                 reason="DeclaredLost", message="An operator declared it lost: flood"),
        ],
        ["spoke west: is not used: DeclaredLost: An operator declared it lost: flood"],
        id="a spoke that is not used",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "problems"), CONFIGURATIONS)
def test_configuration_faults_are_found(messages: list[Seen], problems: list[str]) -> None:
    assert told(configuration(snapshot(*messages))) == problems


def test_possibly_intended_configuration_is_a_note() -> None:
    stopped = observed(
        kinds.LOCAL_QUEUE, "main", {"clusterQueue": "cq", "stopPolicy": "Hold"}, ns="team"
    )
    (finding,) = configuration(snapshot(stopped))
    assert not finding.wrong
    assert finding.advice == "if that is over: `sluice resume localqueue main -n team`"


HOLDINGS: list[Any] = [
    pytest.param(
        [workload(phase="running"), admission("admitted")], [], id="one that runs by our leave"
    ),
    pytest.param(
        [workload(phase="running"), admission("admitted", unplanned=True)],
        ["workload team/job-a: runs though nobody admitted it, and holds 2 cpu"],
        id="one that nobody admitted",
    ),
    pytest.param(
        [admission("admitted")],
        ["workload team/job-a: is gone, but has held 2 cpu of cq for 60m"],
        id="one that is gone",
    ),
    pytest.param([admission("admitted", seconds=5)], [], id="one that went just now"),
    pytest.param(
        [workload(phase="finished"), admission("admitted")],
        ["workload team/job-a: is finished, but has held 2 cpu of cq for 60m"],
        id="one that is finished",
    ),
    pytest.param(
        [workload(phase="finished", pods_active=True), admission("admitted")], [],
        id="one whose pods are still ending",
    ),
    pytest.param(
        [workload(uid="another"), admission("reserved")],
        [
            (
                "workload team/job-a: is another one of the same name now, "
                "but has held 2 cpu of cq for 60m"
            )
        ],
        id="one that was made anew",
    ),
    pytest.param(
        [workload(phase="running"), admission("evicted", reason="Preempted")],
        ["workload team/job-a: was evicted 60m ago (Preempted), and its pods still run"],
        id="one that does not end",
    ),
    pytest.param(
        [workload(), admission("admitted")],
        ["workload team/job-a: was admitted 60m ago, and nobody released its job"],
        id="one that was admitted and is not let go",
    ),
    pytest.param(
        [workload(on_hold="paused"), admission("admitted")], [], id="one that its user paused"
    ),
    pytest.param([workload(phase="finished"), admission("released")], [], id="one that let go"),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "problems"), HOLDINGS)
def test_wrongly_held_quota_is_found(messages: list[Seen], problems: list[str]) -> None:
    assert told(list(held_quota(snapshot(*messages), NOW))) == problems


def recorded(state: str, at: datetime, message: str = "") -> list[Json]:
    return [{"check": "c", "state": state, "at": at.isoformat(), "message": message}]


BEFORE = NOW - timedelta(hours=1)
RESERVED = admission("reserved", checks=["c"])
UNANSWERED = (
    "AdmissionCheck c: its controller example.com/x has answered none of 1 workload(s) that hold quota, "
    "team/job-a for 60m"
)


@pytest.mark.parametrize(
    ("controller", "messages", "problems"),
    [
        pytest.param("example.com/x", [workload(), RESERVED], [UNANSWERED], id="no answer"),
        pytest.param(
            "example.com/x",
            [
                workload(
                    checks=recorded(
                        "Pending", BEFORE, "Reset to Pending after eviction. Previously: Retry"
                    )
                ),
                RESERVED,
            ],
            [UNANSWERED],
            id="the reset of an earlier answer",
        ),
        pytest.param(
            "example.com/x",
            [workload(checks=recorded("Pending", BEFORE, "3 before it")), RESERVED],
            [],
            id="a message",
        ),
        pytest.param(
            "example.com/x",
            [workload(checks=recorded("Ready", BEFORE)), RESERVED],
            [],
            id="a state",
        ),
        pytest.param(
            "example.com/x",
            [workload(), admission("reserved", checks=["c"], seconds=60)],
            [],
            id="it has just got its quota",
        ),
        pytest.param("sluicegate.dev/window", [workload(), RESERVED], [], id="a check of ours"),
    ],
)
def test_check_of_a_controller_that_does_not_answer_is_found(
    controller: str, messages: list[Seen], problems: list[str]
) -> None:
    check = observed(kinds.ADMISSION_CHECK, "c", {"controllerName": controller})
    found = list(unanswered_checks(snapshot(check, *messages), NOW))
    assert told(found) == problems
    remedy = "kubectl annotate admissioncheck c sluicegate.dev/lost=REASON"
    assert all(remedy in finding.advice for finding in found)


def consumer(**more: Any) -> Json:
    return {"config": {"durable_name": "patcher-hub-queues"}, "num_waiting": 1, **more}


@pytest.mark.parametrize(
    ("info", "problems"),
    [
        pytest.param(consumer(num_pending=3), [], id="somebody reads it"),
        pytest.param(
            consumer(num_pending=5000),
            ["consumer patcher-hub-queues of QUEUES_NOW: is 5000 messages behind"],
            id="its reader is behind",
        ),
        pytest.param(
            consumer(num_waiting=0, num_pending=7),
            ["consumer patcher-hub-queues of QUEUES_NOW: nobody reads it; 7 messages wait"],
            id="nobody reads it",
        ),
        pytest.param(
            {"name": "x", "config": {"deliver_subject": "a.b"}},
            ["consumer x of QUEUES_NOW: has the server push to a.b, which none of ours does"],
            id="it pushes, which none of ours does",
        ),
    ],
)
def test_consumer_without_reader_or_behind_is_found(info: Json, problems: list[str]) -> None:
    assert told(consumer_findings("QUEUES_NOW", info)) == problems


def test_nearly_full_log_and_lagging_view_are_found() -> None:
    config = {"discard": "new", "max_bytes": 1000}
    info = {"config": config, "state": {"bytes": 950}, "sources": [{"name": "X", "lag": 2000}]}
    assert told(full_or_behind("X_NOW", info)) == [
        "stream X_NOW: is 95 % full, and refuses more when it is full",
        "stream X_NOW: is 2000 messages behind X",
    ]
    info = {"config": {**config, "discard": "old"}, "state": {"bytes": 950}}
    assert full_or_behind("X", info) == []
    assert told(full_or_behind("X_NOW", info)) == [
        "stream X_NOW: is 95 % full, and forgets how objects stand when it is full"
    ]


def test_dead_letters_beyond_the_shown_are_counted() -> None:
    letter = seen("sluice.dead.patcher.x", service="patcher", reason="r", original_subject="x")
    assert len(dead_letters([letter] * 3)) == 3
    *_, last = told(dead_letters([letter] * (DEAD_SHOWN + 4)))
    assert last == "dead letters: 4 more"


# Nodes -------------------------------------------------------------------------------------------


def node(name: str, cpu: str, **labels: str) -> Seen:
    metadata = {"name": name, "labels": labels}
    obj = {"metadata": metadata, "status": {"allocatable": {"cpu": cpu, "memory": "8Gi"}}}
    return seen(
        f"sluice.observed.hub._.{name}.{kinds.NODE.detail}",
        group="", version="v1", kind="Node", namespace=None, name=name, object=obj,
    )  # fmt: skip


def queue_with(flavor: str, **nominal: str) -> Seen:
    resources = [{"name": name, "nominalQuota": amount} for name, amount in nominal.items()]
    flavors = [{"name": flavor, "resources": resources}]
    return observed(kinds.CLUSTER_QUEUE, "cq", {"resourceGroups": [{"flavors": flavors}]})


SPOT = observed(kinds.RESOURCE_FLAVOR, "spot", {"nodeLabels": {"disk": "ssd"}})

NODES: list[Any] = [
    pytest.param([SPOT, queue_with("spot", cpu="100")], [], id="nothing where no node is watched"),
    pytest.param(
        [node("a", "4"), node("b", "4"), queue_with("default", cpu="8")],
        [],
        id="nothing where the nodes hold what is promised",
    ),
    pytest.param(
        [node("a", "4"), node("b", "3500m"), queue_with("default", cpu="8", slots="50")],
        ["ResourceFlavor default: queues have 8 cpu in all, its nodes in hub 7500m"],
        id="quota above what the nodes of a flavor have, but not slots that only quota counts",
    ),
    pytest.param(
        [SPOT, node("a", "4", disk="hdd"), queue_with("spot", cpu="0")],
        ["ResourceFlavor spot: matches no node of hub: none has disk=ssd"],
        id="a flavor that matches no node",
    ),
    pytest.param(
        [SPOT, node("a", "4", disk="ssd"), node("b", "4"), queue_with("spot", cpu="5")],
        ["ResourceFlavor spot: queues have 5 cpu in all, its nodes in hub 4"],
        id="quota above its own nodes, though others are there",
    ),
]


@pytest.mark.parametrize(("messages", "problems"), NODES)
def test_flavors_and_quota_are_compared_with_nodes(
    messages: list[Seen], problems: list[str]
) -> None:
    assert told(list(nodes(snapshot(*messages)))) == problems


def test_part_of_the_configuration_without_effect_is_to_know_of(tmp_path: Path) -> None:
    document = tmp_path / "kueue.yaml"
    document.write_text("tls: {minVersion: VersionTLS13}\n")
    (finding,) = kueue_configuration(document)
    assert not finding.wrong
    assert finding.problem.startswith("tls is not used: ")
    document.write_text("tls: {minVersio: VersionTLS13}\n")
    (finding,) = kueue_configuration(document)
    assert finding.wrong
    assert "tls.minVersio: unknown field" in finding.problem
    assert kueue_configuration(None) == []
