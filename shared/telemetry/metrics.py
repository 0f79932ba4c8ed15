"""Metrics that every service has. Labels have few values, and never the name of a workload."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

ROLE: Final = "replica_role"
LEADER: Final = "leader"
"""Kueue's label for the role of a replica, and its value: what has it, only a leader publishes here."""

READY: Final = Gauge("sluicegate_ready", "1 while the process does its work, as /readyz says.")
BUS_CONNECTED: Final = Gauge("sluicegate_bus_connected", "1 while there is a connection to NATS.")

WORK: Final = Counter(
    "sluicegate_work",
    "Entries of durable consumers that were handled, put off, or given up as dead letters.",
    ["durable", "result"],
)
RESULTS: Final = ("done", "later", "never", "newer")
"""`newer`: put off because a newer release wrote it."""

BACKLOG: Final = Gauge(
    "sluicegate_work_backlog",
    "Entries of durable consumers that are not done: waiting, or taken and put off or in hand.",
    ["durable", "state"],
)
KUBE_REQUESTS: Final = Counter(
    "sluicegate_kube_requests",
    "Answers of the Kubernetes API, without watches.",
    ["method", "code"],
)
KUBE_SECONDS: Final = Histogram(
    "sluicegate_kube_request_seconds",
    "Time to an answer of the Kubernetes API, without watches.",
    ["method"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)


def count_kube_answer(method: str, code: str, seconds: float) -> None:
    """Count an answer of the Kubernetes API. `code` is ``none`` where there was none."""
    KUBE_SECONDS.labels(method=method).observe(seconds)
    KUBE_REQUESTS.labels(method=method, code=code).inc()


UNREADABLE: Final = Counter(
    "sluicegate_bus_unreadable",
    "Entries that a reader skipped because their body could not be read.",
    ["stream"],
)
BODIES: Final = Counter(
    "sluicegate_bus_unreadable_bodies",
    "Large bodies that count as gone, because their description cannot be read or they are too large.",
)
NEWER: Final = Counter(
    "sluicegate_bus_newer_schema",
    "Entries that a reader held apart because a newer release wrote them: upgrade the service.",
    ["stream"],
)
VOID: Final = Counter(
    "sluicegate_bus_void",
    "Decisions that a reader dropped because their leader had been replaced when they were stored.",
    ["stream"],
)
REFILLED: Final = Counter(
    "sluicegate_bus_refilled",
    "Messages that a log had lost in a power cut and that were published again from its view.",
    ["stream"],
)
GIVEN_UP: Final = Counter(
    "sluicegate_bus_unacknowledged",
    "Messages that their sender gave up for now, because NATS had not acknowledged them for long.",
    ["stream"],
)
LOST: Final = Counter(
    "sluicegate_bus_lost_logs",
    "How often a log lacked what it had acknowledged: it was set back or made anew.",
    ["stream"],
)
REFUSED: Final = Counter(
    "sluicegate_refused_messages",
    "Messages that asked for what their sender may not ask, or what the cluster contradicts.",
    ["message", "reason"],
)
FOREIGN_ID: Final = Counter(
    "sluicegate_bus_foreign_duplicates",
    "Messages that the server took for duplicates of another writer's, and that were sent again.",
)
WATCH_FAILURES: Final = Counter(
    "sluicegate_watch_failures", "Lists and watches that failed and are tried again.", ["resource"]
)
