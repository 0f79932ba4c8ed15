"""Names that were replaced, with the plain word that took their place, by service."""

from typing import Final

_MODULES: Final = {
    "services/dispatcher": {
        "knowledge": "store",
        "telling": "orders",
        "reporting": "spoke_status",
        "homecoming": "hub_status",
        "weighing": "situation",
        "room": "capacity",
        "nominating": "nomination",
        "presence": "liveness",
        "ranking": "priority",
    },
    "services/provisioner": {
        "knowledge": "store",
        "book": "ledger",
        "usher": "access",
        "tender": "controller",
        "care": "controllers",
        "verdicts": "results",
        "outside": "adapters",
        "upkeep": "maintenance",
    },
    "services/classifier": {
        "surroundings": "cluster_objects",
        "vicinity": "namespace_defaults",
        "recorded": "workload_status",
        "equivalents": "version_mappings",
    },
    "services/quota": {
        "life": "workload",
        "lives": "timers",
        "standing": "queue_status",
        "answers": "explainer",
        "follower": "replica",
        "course": "simulation",
        "past": "history",
        "picture": "snapshot",
    },
    "services/patcher": {
        "mirror": "cache",
        "elsewhere": "multikueue",
        "home": "hub_status",
        "onlookers": "owner_notices",
        "news": "status_events",
        "anchor": "plan",
        "anchors": "reconciler",
        "ranks": "priority",
        "pace": "pacing",
    },
    "services/console": {"desk": "query_service", "demand": "idle_tracker"},
    "shared/bus": {
        "door": "spoke_gateway",
        "gathering": "io_batching",
        "micro": "nats_service",
        "look": "stream_reader",
    },
}
_CLASSES: Final = {
    "services/dispatcher": {
        "Knowledge": "Store",
        "Session": "Term",
        "Room": "Capacity",
        "Life": "Liveness",
        "OpenContradictions": "CopyPhase",
        "Telling": "a publisher of orders",
        "Rank": "priority",
    },
    "services/provisioner": {
        "Knowledge": "Store",
        "Session": "Term",
        "Book": "AllocationLedger",
        "Seat": "HostSlot",
        "Shelf": "StoredRecord",
        "Usher": "HostAccessController",
        "Manners": "RetryPolicy",
        "Tender": "MachineController",
        "Care": "ControllerSet",
        "Sighting": "MachineObservation",
        "Upkeep": "Maintenance",
    },
    "services/classifier": {
        "Place": "NamespaceContext",
        "Surroundings": "ClusterObjects",
        "Vicinity": "NamespaceDefaults",
    },
    "services/quota": {
        "Life": "WorkloadLifecycle",
        "Lives": "LifecycleTimers",
        "Bulletin": "QueueStatusPublisher",
        "Follower": "ReadReplica",
        "Picture": "Snapshot",
        "Course": "Simulation",
        "Past": "History",
        "Leadership": "Term",
    },
    "services/patcher": {
        "Mirror": "ObjectCache",
        "Elsewhere": "MultiKueue",
        "Home": "hub status",
        "Onlookers": "OwnerNotices",
        "News": "StatusEvents",
        "Anchors": "CoschedulingReconciler",
        "Ranks": "priority",
    },
    "services/console": {"Desk": "QueryService", "Demand": "IdleTracker", "Eyes": "Visibility"},
    "services/tracer": {"Life": "WorkloadTrace"},
    "services/watcher": {"Observation": "Term"},
    "shared/bus": {"Door": "SpokeGateway", "Look": "StreamReader"},
}


def _flat(table: dict[str, dict[str, str]]) -> dict[tuple[str, str], str]:
    return {(place, name): plain for place, names in table.items() for name, plain in names.items()}


BANNED_MODULES: Final = _flat(_MODULES)
BANNED_CLASSES: Final = _flat(_CLASSES)
