"""A workload's history in words: a line for each change, none for what repeats it."""

from datetime import UTC, datetime, timedelta
from typing import Any

from services.history.story import descriptions, story

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

WAITING = {
    "name": "job-a", "phase": "waiting", "queue": "main", "priority": 5,
    "priority_class": "low", "pod_sets": [{"count": 2, "requests": {"cpu": "1"}}],
}  # fmt: skip
DECISION = {"name": "job-a", "cluster_queue": "cq", "pod_sets": [{"usage": {"cpu": "2"}}]}

PREEMPTED: list[tuple[str, dict[str, Any]]] = [
    ("observed", {"name": "a", "kind": "Job"}),
    ("workload", WAITING),
    ("workload", WAITING),
    ("admission", DECISION | {"state": "waiting", "reason": "WaitingForQuota", "message": "1 cpu"}),
    ("admission", DECISION | {"state": "waiting", "reason": "WaitingForQuota", "message": "1 cpu"}),
    ("check", {"name": "job-a", "check": "machines", "state": "Ready"}),
    ("admission", DECISION | {"state": "admitted"}),
    ("outcome", {"name": "job-a", "action": "status", "result": "applied"}),
    ("outcome", {"name": "job-a", "action": "release", "result": "applied"}),
    ("observed", {"name": "a", "kind": "Job"}),
    ("workload", WAITING | {"phase": "running"}),
    ("workload", WAITING | {"phase": "running", "generation": 2}),
    ("workload", WAITING | {"phase": "running", "pods_ready": False}),
    ("workload", WAITING | {"phase": "running", "pods_ready": True}),
    (
        "admission",
        DECISION
        | {"state": "evicted", "reason": "Preempted", "message": "room", "preempted_by": "team/b"},
    ),
    ("outcome", {"name": "job-a", "action": "stop", "result": "refused", "message": "forbidden"}),
    ("admission", DECISION | {"state": "waiting", "reason": "WaitingForQuota", "message": "2 cpu"}),
    ("workload", WAITING),
    ("workload", WAITING | {"phase": "finished", "finish": {"success": True, "message": "Done"}}),
    ("workload", WAITING | {"phase": "gone"}),
]


def test_story_of_a_preempted_job_has_one_line_for_each_change() -> None:
    events = [
        (NOON + timedelta(seconds=number), what, body)
        for number, (what, body) in enumerate(PREEMPTED)
    ]

    lines = list(story(events))

    assert [line.split("  ", 2)[2].strip() for line in lines] == [
        "waits in LocalQueue main, priority 5 (low), asks 2 x 1 cpu",
        "is not admitted: WaitingForQuota: 1 cpu",
        "admission check machines is Ready",
        "is admitted by ClusterQueue cq: 2 cpu",
        "its job is started",
        "runs",
        "runs; not all of its pods are ready",
        "runs; its pods are ready",
        "is evicted for team/b: Preempted: room",
        "the cluster: stop is refused: forbidden",
        "is not admitted: WaitingForQuota: 2 cpu",
        "waits in LocalQueue main, priority 5 (low), asks 2 x 1 cpu",
        "succeeded: Done",
        "is deleted",
    ]
    assert lines[0].startswith("2026-01-01 12:00:01+00:00  +0s ")
    assert lines[1].startswith("2026-01-01 12:00:03+00:00  +2s ")


COPY = WAITING | {"labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue"}, "queue": "there"}


def test_story_names_copies_on_spokes_until_they_are_gone() -> None:
    hub, east, west = ({"cluster": name} for name in ("hub", "east", "west"))
    events: list[tuple[str, dict[str, Any]]] = [
        ("workload", WAITING | hub),
        ("workload", COPY | east),
        ("workload", COPY | west),
        ("admission", DECISION | east | {"state": "admitted"}),
        ("admission", DECISION | hub | {"state": "admitted", "spoke": "east"}),
        ("outcome", {"name": "job-a", "action": "release", "result": "applied"} | east),
        ("workload", COPY | east | {"phase": "running"}),
        ("workload", COPY | west | {"phase": "gone"}),
        ("workload", COPY | west | {"phase": "gone"}),
    ]
    asks = "priority 5 (low), asks 2 x 1 cpu"

    assert [text for _, _, text in descriptions((NOON, what, body) for what, body in events)] == [
        f"waits in LocalQueue main, {asks}",
        f"copy on spoke east: waits in LocalQueue there, {asks}",
        f"copy on spoke west: waits in LocalQueue there, {asks}",
        "copy on spoke east: is admitted by ClusterQueue cq: 2 cpu",
        "is admitted by ClusterQueue cq, to run on spoke east: 2 cpu",
        "copy on spoke east: its job is started",
        "copy on spoke east: runs",
        "copy on spoke west: is deleted",
    ]


def test_second_start_has_the_words_of_the_first() -> None:
    started = ("outcome", {"name": "job-a", "action": "release", "result": "applied"})
    admitted = ("admission", DECISION | {"state": "admitted"})
    evicted = ("admission", DECISION | {"state": "evicted", "reason": "ClusterQueueStopped"})

    events: list[tuple[str, dict[str, Any]]] = [
        *(admitted, started, started, evicted, admitted, started),
    ]

    assert [line.split("  ", 2)[2].strip() for line in story((NOON, *each) for each in events)] == [
        "is admitted by ClusterQueue cq: 2 cpu",
        "its job is started",
        "is evicted: ClusterQueueStopped",
        "is admitted by ClusterQueue cq: 2 cpu",
        "its job is started",
    ]
