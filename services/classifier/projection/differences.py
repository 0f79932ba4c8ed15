"""Compares two states of one workload: what is news, to whom, and how urgent it is. Pure."""

from typing import Final, NamedTuple

from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.workloads import WorkloadState

_REQUESTED: Final = (
    "queue",
    "priority",
    "priority_class",
    "pod_sets",
    "active",
    "inadmissible",
    "unresolved",
    "on_hold",
    "gated",
    "max_execution_seconds",
    "coschedule",
)
"""Fields that a decision answers: a change of one is a new generation."""

_DECISION: Final = frozenset(
    {
        "version",
        "admission",
        "admitted_at",
        "evicted_at",
        "evicted_reason",
        "evicted",
        "traceparent",
    }
)
"""Fields that change when a decision is written into a Workload object. Without a job, `held` too."""

_READ_MARKS: Final = frozenset({"generation", "traceparent"})
"""Fields whose change alone is no change of the workload."""


class Change(NamedTuple):
    """A state to publish."""

    state: WorkloadState
    deferrable: bool
    """True: only our own decision was recorded. Nothing waits for it; it serves a reader that finds the
    log of decisions lost."""


def requested(state: WorkloadState) -> tuple[object, ...]:
    """Return what a decision answers."""
    return tuple(getattr(state, field) for field in _REQUESTED)


def only_records_decision(last: WorkloadState, state: WorkloadState) -> bool:
    """Return whether the only news is the quota that the workload was given."""
    if state.admission is None or state.evicted_at is not None:
        return False  # Readers wait for the end of a reservation.
    recorded = _DECISION if state.owner is not None else _DECISION | {"held"}
    return _is_equal(last, state, ignoring=recorded)


def edited_while_waiting(last: WorkloadState, state: WorkloadState) -> bool:
    """Return whether a waiting job's spec changed: the cluster may now accept what it refused."""
    waiting = all(
        each.held and each.phase == "waiting" and each.admission is None for each in (last, state)
    )
    return waiting and last.spec_generation != state.spec_generation


def is_same(a: WorkloadState, b: WorkloadState, *, evicted: bool) -> bool:
    """Return whether two states are equal but for fields that only mark the reading, and labels for people.

    The version counts for an evicted workload: quota waits to see that the eviction took effect (ADR 4).
    """
    return _is_equal(a, b, ignoring=_READ_MARKS if evicted else _READ_MARKS | {"version"})


def _is_equal(a: WorkloadState, b: WorkloadState, *, ignoring: frozenset[str]) -> bool:
    """Compare two states field by field, without a copy: this runs for every event.

    Of the labels only the mark of a copy counts. The others go along with the next change: a tenant may
    write them as often as it likes.
    """
    other = vars(b)
    return all(
        value == other[field]
        or (field == "labels" and a.labels.get(ORIGIN) == b.labels.get(ORIGIN))
        for field, value in vars(a).items()
        if field not in ignoring
    )
