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
    "projection-fenced",
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
    "lives": (*_BUS, "drain-awaited", "earlier-outcome", "reason-superseded"),
    "late-decisions": ("term-awaited",),
    "late-observations": ("stale-ended",),
    "late-refusals": ("stop-marked", "refused-before"),
    "late-releases": ("stop-marked", "decision-outdated"),
    "two-leaders": ("term-unread",),
    "revivals": ("end-swept", "revived"),
    "machines": ("fence-refused", "duplicate-dropped", "put-off", "lease-lost"),
    "tenants": ("bypass-found", "earlier-workload", "put-off"),
    "swarm": (
        *_ONE_CLUSTER,
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
    ),
    "spokes": (*_BUS, "start-not-ordered", "copy-stopped", "copy-awaited", "reason-superseded"),
}
"""By scenario."""
