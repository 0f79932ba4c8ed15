"""Which safety mechanisms have to act in which scenario, by the names of their probes.

A scenario in which one of them never acts over many seeds does not test it: the faults are too mild, or
the mechanism is dead code.
"""

from collections.abc import Mapping
from typing import Final

_BUS: Final = (
    "fence-refused",
    "own-write-found",
    "duplicate-dropped",
    "newer-delivered",
    "put-off",
    "lease-lost",
)
_ONE_CLUSTER: Final = (
    *_BUS,
    "tombstone-at-list",
    "coalesced",
    "newer-published",
    "gone-at-sync",
    "echo-deferred",
    "term-awaited",
    "older-entry-dropped",
    "held-until-sync",
    "earlier-outcome",
    "repetition-dropped",
    "not-yet-seen",
    "state-changed",
    "created-before",
    "writes-paused",
)

MECHANISMS: Final[Mapping[str, tuple[str, ...]]] = {
    "basic": _ONE_CLUSTER,
    "lives": (*_BUS, "drain-awaited", "earlier-outcome"),
    "late-decisions": ("term-awaited",),
    "late-observations": ("stale-ended",),
    "late-refusals": ("stop-marked", "refused-before"),
    "late-releases": ("stop-marked", "decision-outdated"),
    "two-leaders": ("term-unread",),
    "revivals": ("end-swept", "revived"),
    "machines": ("fence-refused", "duplicate-dropped", "put-off", "lease-lost", "slot-fenced"),
    "tenants": ("bypass-found", "earlier-workload", "put-off"),
    "swarm": (
        *_ONE_CLUSTER,
        "projection-fenced",
        "dead-letter",
        "recreated",
        "new-work-postponed",
        "decider-fenced",
        "drain-awaited",
        "claim-kept",
        "release-refused",
        "admission-stopped",
        "isolated",
        "reason-superseded",
        "other-uid",
        "window-dropped",
        "later-state-stored",
        "earlier-read",
        "restated",
        "newer-schema",
        "term-void",
        "log-changed",
        "acknowledged-lost",
        "projection-own-write",
        "unreadable-replaced",
        "void-repaired",
        "release-read-afresh",
    ),
    "spokes": (*_BUS, "start-not-ordered", "copy-stopped", "copy-awaited", "reason-superseded"),
}
"""By scenario."""

SHOWN_BY_TESTS: Final[Mapping[str, str]] = {
    "overtaken": "tests/unit/bus/test_publisher_order.py",
    "end-kept": "tests/unit/quota/test_ended_work.py",
    "log-refilled": "tests/integration/test_lost_tail.py",
    "swept-name-reused": "tests/unit/classifier/projection/test_swept_names.py",
    "newer-listing": "tests/unit/classifier/projection/test_newer_listing.py",
    "old-tombstone": "tests/unit/classifier/projection/test_projector.py",
    "later-tombstone": "tests/unit/classifier/projection/test_projector.py",
    "history-trimmed": "tests/unit/quota/test_ended_work.py",
    "history-shortened": "tests/unit/quota/test_ended_work.py",
    "gone-while-away": "tests/unit/quota/test_gone_unseen.py",
    "earlier-uid-gone": "tests/unit/quota/test_gone_unseen.py",
    "adopted": "tests/unit/quota/test_recorded_checks.py",
    "contradicted": "tests/unit/quota/test_auditor.py",
    "older-decision": "tests/unit/patcher/test_older_decision.py",
    "release-too-late": "tests/unit/patcher/test_late_release.py",
    "queues-awaited": "tests/unit/patcher/test_finalizers.py",
    "earlier-copy": "tests/unit/patcher/test_copies.py",
}
"""Mechanisms that worlds show too seldom, or never: the test in which each has to act."""
