"""Names that were replaced, with the plain word that took their place.

By service where the word is right elsewhere (a Session of boto, the leadership of a lease); in every room
where it says nothing to an engineer of this field.
"""

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
        "Standing": "CopyPhase",
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

METAPHORS: Final = {
    "anchor": "coscheduling",
    "anchors": "coscheduling",
    "beat": "heartbeat",
    "bulletin": "publisher",
    "care": "controllers",
    "cls": "waiting_class",
    "company": "extra kinds",
    "desk": "query_service",
    "door": "gateway",
    "elsewhere": "multikueue",
    "eyes": "visibility",
    "gathering": "io_batching",
    "hole": "damage, or gap",
    "homecoming": "hub_status",
    "knowledge": "store",
    "look": "direct_read, or poll",
    "lq": "local_queue",
    "manners": "retry_policy",
    "micro": "nats_service",
    "mirror": "cache",
    "news": "status_events",
    "nominating": "nomination",
    "onlookers": "owner_notices",
    "patience": "time limit, or retry",
    "picture": "snapshot",
    "said": "last_published",
    "seat": "slot",
    "shelf": "record",
    "sighting": "observation",
    "surroundings": "cluster_objects",
    "telling": "orders, or description",
    "tender": "controller",
    "told": "notified",
    "upkeep": "maintenance, or cleanup",
    "usher": "access",
    "vain": "fruitless",
    "vicinity": "namespace_defaults",
    "weighing": "situation",
    "wish": "requested change",
}
"""Words in the name of a module or a class, of code and of tests, in any room."""

METAPHORS_OF_CODE: Final = {
    "book": "ledger",
    "course": "simulation",
    "life": "the state or the lifecycle of what lives",
    "lives": "lifecycles, or timers",
    "past": "history",
    "place": "slot, or context",
}
"""As `METAPHORS`, for what runs: tests have the life of a pod, and the place where a test happens."""

VAGUE_VARIABLES: Final = frozenset({"look", "said", "told"})
"""What no variable and no argument of code is called."""

REPLACED_NAMES: Final = {
    "company": "extra_kinds",
    "course": "simulation",
    "life": "lifecycle, or what begins and ends",
    "lives": "lifecycles, or what is alive",
    "past": "history",
    "ringing": "firing",
    "room_of": "releasable_counts",
    "says_less": "is_less_specific",
    "seat": "slot",
    "seats": "slots",
    "seldom": "evaluate_on_demand",
    "surroundings_error": "environment_error",
    "tend": "what is done, as enqueue_cleanup",
    "wish": "requested_spec_change, or preference",
    "wishes": "preferences",
}
"""What no variable, argument, attribute, function or method of code is called."""

SHOWN_FIELDS: Final = {
    ("shared/contracts/messages/dispatches.py", "wish"): "a field of messages that are on record",
    ("shared/contracts/messages/hosts.py", "seats"): "a field of messages that are on record",
}
"""Names of `REPLACED_NAMES` that other programs read: they stay in that file, with the reason."""

SHOWN: Final = {
    "CourseFigures": "a schema of the console's OpenAPI document",
    "QuotaPlace": "a schema of the console's OpenAPI document",
}
"""Classes whose names a user reads: they stay, with the reason."""


def _flat(table: dict[str, dict[str, str]]) -> dict[tuple[str, str], str]:
    return {(place, name): plain for place, names in table.items() for name, plain in names.items()}


BANNED_MODULES: Final = _flat(_MODULES)
BANNED_CLASSES: Final = _flat(_CLASSES)
